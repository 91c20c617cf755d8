"""Workloads with knobs, and the traces that they generate.

A client starts sessions. A session is a chat of one or more turns. Each turn is a request with all
earlier messages. A turn brings text and images. An image is new, or its tenant has sent it before.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from bench.trace import distributions
from bench.trace.records import Image, Message, Request, Text

# About ServeGen's median of texts.
_QUESTION_TOKENS = 100

# How many images a turn brings.
IMAGES: dict[str, Callable[[Random, int], int]] = {
    "fitted": lambda draw, _turn: distributions.image_count(draw),
    "first turn": lambda _draw, turn: int(turn == 0),
    # 33 screenshots in turn 16, of which 31 were in turn 15.
    "screenshots": lambda _draw, turn: 1 if turn == 0 else 2,
    # 207 of 100 requests.
    "references": lambda draw, _turn: 3 if draw.random() < 0.07 else 2,
}


@dataclass(frozen=True)
class Workload:
    """The knobs of a trace."""

    name: str
    sessions: int
    turns: tuple[int, int] = (1, 1)  # the fewest and the most in a session, evenly distributed
    images: str = "fitted"
    reuse: float = 0.0  # the share of images from an earlier turn or session of the tenant
    window: int | None = None  # a request keeps only this many of the newest images
    clients: int = 35
    top_clients: int = 8
    top_share: float = 0.74
    tenants: int = 1
    questions: int = 0  # the number of different texts in all turns; 0 makes each text new
    system: int = 0  # tokens of the system prompt, which a client's requests share
    rate: float = 1.0  # sessions per second
    burst: float = 2.0  # the variance of the gaps, relative to Poisson arrivals
    pause_s: float = 15.0  # the mean gap between the turns of a session
    context: int | None = None  # a session ends before a prompt with its reply exceeds this
    seed: int = 0

    def without_reuse(self) -> "Workload":
        """Return the control: single turns, and every image new."""
        return replace(self, name=f"{self.name}, no reuse", turns=(1, 1), reuse=0.0, system=0)


# The traces whose figures are published; `python -m bench.trace` compares them.
SERVEGEN = Workload("servegen", sessions=20_000, reuse=0.5, tenants=35)
VISIONARENA = Workload(
    "visionarena", sessions=940, turns=(1, 4), images="first turn", reuse=1 - 1 / 4.7
)
REFERENCES = Workload(
    "references", sessions=100, images="references", reuse=1 - 42 / 207, clients=8, top_clients=2
)
AGENTS = Workload("agents", sessions=12, turns=(17, 17), images="screenshots", clients=12)

# Many questions about a few images, and a few questions about many images. The image comes first,
# and the text does not show which image it is about.
DOCUMENTS = Workload("documents", sessions=110, images="first turn", reuse=0.8)
SAME_QUESTION = Workload("same question", sessions=110, images="first turn", reuse=0.5, questions=4)
WORKLOADS = {one.name: one for one in (SERVEGEN, VISIONARENA, REFERENCES, AGENTS)}


def generate(workload: Workload) -> list[Request]:
    """Return the requests of a trace, in order of arrival."""
    return _Generator(workload).requests()


def scaled(requests: list[Request], factor: float, replies: float) -> list[Request]:
    """Return a trace for slow engines: prompts and replies are scaled by these factors.

    Its clients, sessions, times and reuse stay the same.
    """

    def part(one: Image | Text) -> Image | Text:
        if isinstance(one, Text):
            return Text(one.text, max(1, round(one.tokens * factor)))
        size = distributions.size_of(one.tokens * factor, one.width / one.height)
        return Image(one.image, *size)

    return [
        replace(
            one,
            messages=_map_parts(one.messages, part),
            output_tokens=max(1, round(one.output_tokens * replies)),
        )
        for one in requests
    ]


def renamed(requests: list[Request], prefix: str) -> list[Request]:
    """Return the trace with other content, so that no cache holds parts of both traces."""

    def part(one: Image | Text) -> Image | Text:
        if isinstance(one, Text):
            return replace(one, text=prefix + one.text)
        return replace(one, image=prefix + one.image)

    return [replace(one, messages=_map_parts(one.messages, part)) for one in requests]


def _map_parts(
    messages: tuple[Message, ...], part: Callable[[Image | Text], Image | Text]
) -> tuple[Message, ...]:
    return tuple(Message(one.role, tuple(map(part, one.content))) for one in messages)


class _Session:
    """A chat while it is generated."""

    def __init__(self, name: str, client: int, tenant: str, arrival: float, turns: int) -> None:
        self.name, self.client, self.tenant = name, client, tenant
        self.arrival, self.turns = arrival, turns
        self.history: list[Message] = []


class _Generator:
    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._draw = Random(workload.seed)
        self._images: dict[str, list[Image]] = {}
        self._references = self._new = 0

    def requests(self) -> list[Request]:
        """Generate the turns in order of arrival, because reuse follows time, not sessions."""
        sessions = self._sessions()
        due = [
            (at, number, turn)
            for number, one in enumerate(sessions)
            for turn, at in enumerate(self._arrivals(one))
        ]
        made = (self._turn(sessions[number], turn, at) for at, number, turn in sorted(due))
        return [request for request in made if request is not None]

    def _sessions(self) -> list[_Session]:
        """Return the sessions of all clients, with Gamma-distributed gaps for each client."""
        load, draw = self._workload, self._draw
        weights = distributions.client_weights(load.clients, load.top_clients, load.top_share)
        counts = distributions.apportion(load.sessions, weights)
        duration = load.sessions / load.rate
        sessions: list[_Session] = []
        for client, count in enumerate(counts):
            gaps = [draw.gammavariate(1 / load.burst, 1.0) for _ in range(count + 1)]
            # Stretch the gaps, so that every client is active for the whole duration.
            stretch = duration / sum(gaps)
            for arrival in accumulate(gap * stretch for gap in gaps[:-1]):
                name = f"s{len(sessions)}"
                tenant = f"t{client % load.tenants}" if load.tenants > 1 else ""
                turns = draw.randint(*load.turns)
                sessions.append(_Session(name, client, tenant, arrival, turns))
        return sessions

    def _arrivals(self, session: _Session) -> list[float]:
        """Return when the turns of a session arrive."""
        load, draw = self._workload, self._draw
        gaps = [
            draw.gammavariate(1 / load.burst, load.burst * load.pause_s)
            for _ in range(session.turns - 1)
        ]
        return list(accumulate(gaps, initial=session.arrival))

    def _turn(self, session: _Session, turn: int, at: float) -> Request | None:
        """Generate a request, or None if its session has ended because the context is full."""
        draw, name = self._draw, f"{session.name}.{turn}"
        if len(session.history) < 2 * turn:
            return None
        images = [
            self._image(session.tenant) for _ in range(IMAGES[self._workload.images](draw, turn))
        ]
        question = Text(f"{name}.question", distributions.text_tokens(draw))
        if self._workload.questions:
            number = draw.randrange(self._workload.questions)
            question = Text(f"question {number}", _QUESTION_TOKENS)
        answer = Text(f"{name}.answer", distributions.output_tokens(draw))
        message = Message("user", (*images, question))
        messages = self._in_window((*self._system(session), *session.history, message))
        request = Request(
            at=round(at, 3),
            client=f"c{session.client}",
            tenant=session.tenant,
            session=session.name,
            turn=turn,
            messages=messages,
            output_tokens=answer.tokens,
        )
        context = self._workload.context
        if context is not None and request.tokens + answer.tokens > context:
            return None
        session.history += [message, Message("assistant", (answer,))]
        return request

    def _system(self, session: _Session) -> tuple[Message, ...]:
        tokens = self._workload.system
        if not tokens:
            return ()
        return (Message("system", (Text(f"c{session.client}.system", tokens),)),)

    def _image(self, tenant: str) -> Image:
        """Return a new or a known image. Of all images so far, the share `reuse` is known."""
        load, draw = self._workload, self._draw
        known = self._images.setdefault(tenant, [])
        self._references += 1
        if known and self._references * (1 - load.reuse) - self._new < draw.random():
            # Log-uniform: the second image is half as popular as the first (Zipf's law).
            return known[min(len(known) - 1, int(len(known) ** draw.random()) - 1)]
        self._new += 1
        image = Image(f"i{sum(map(len, self._images.values()))}", *distributions.image_size(draw))
        known.append(image)
        return image

    def _in_window(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Keep only the newest images, as agents do before their context overflows."""
        window = self._workload.window
        if window is None:
            return messages
        kept: list[Message] = []
        left = window
        for one in reversed(messages):
            parts: list[Image | Text] = []
            for part in reversed(one.content):
                if isinstance(part, Image):
                    if left == 0:
                        continue
                    left -= 1
                parts.append(part)
            kept.append(Message(one.role, tuple(reversed(parts))))
        return tuple(reversed(kept))
