"""The client of a helper process: start the process, ask questions, cache the answers.

Each question carries the socket for its answer, so threads and forked processes can share a helper
without a lock. If the helper exits, the kernel closes the socket, and the waiting caller notices.
"""

import os
import socket
import subprocess
import sys
import weakref
from itertools import chain, repeat
from pathlib import Path
from threading import Lock
from typing import TypeVar

import msgspec

from mmhash.cpu import hash_raw
from mmhash.errors import InputValueError, MMHashError
from mmhash.fields import field
from mmhash.lru import LruCache
from mmhash.prompts.items import Expansion, check_count
from mmhash.prompts.processor.messages import Answer, Facts, Question
from mmhash.prompts.section import UnknownModelError

T = TypeVar("T")

_HELPER = "mmhash.prompts.processor.helper"

_START_S = 180.0
"""How many seconds a processor may take to load. Importing torch from a cold disk is slow."""

_QUEUE_S = 3.0
"""How many seconds a question may wait behind other questions."""

_MAX_ANSWER = 4 << 20
_CACHE_BYTES = 64 << 20
_ENTRY_BYTES = 1 << 10

# The files that a processor reads.
_COUNTING = frozenset({".jinja", ".json", ".model", ".py", ".txt"})

# Let the helper read nothing but the model's directory, and use one thread.
_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}


class ProcessorError(MMHashError):
    """The helper exited, took too long, or sent a malformed answer."""


class ModelProcessor:
    """The processor of a model, in a helper process that starts with the first question."""

    def __init__(
        self, directory: Path, *, trust_remote_code: bool = False, question_s: float = 5.0
    ) -> None:
        """Use a model's directory. Give up on a question after `question_s` seconds."""
        self._directory = directory
        self._arguments = (str(directory), str(int(trust_remote_code)), str(question_s))
        self._answer_s = question_s + _QUEUE_S
        self._questions: socket.socket | None = None
        self._facts: Facts | None = None
        self._identity = b""
        self._known: LruCache[Question, Expansion] = LruCache(_CACHE_BYTES, _size_of)
        self._lock = Lock()
        self._starting = Lock()

    def facts(self) -> Facts:
        """Return facts about the processor. Raise UnknownModelError if it cannot be loaded."""
        if self._facts is None:
            facts = _decode(self._ask(None, _START_S), Facts)
            if facts.error:
                raise UnknownModelError(f"the model's processor cannot be loaded: {facts.error}")
            self._facts = facts
        return self._facts

    def identity(self) -> bytes:
        """Return a digest of everything that an answer depends on, apart from the question."""
        versions = self.facts().versions
        if not self._identity:
            files = [path for path in self._directory.iterdir() if path.suffix in _COUNTING]
            found = [versions.encode()]
            for path in sorted(files):
                found += [path.name.encode(), path.read_bytes()]
            self._identity = hash_raw(memoryview(b"".join(map(field, found))), "blake3")
        return self._identity

    def known(self, question: Question) -> Expansion | None:
        """Return the cached expansion for a question, or None."""
        with self._lock:
            return self._known.get(question)

    def ask(self, question: Question) -> bytes:
        """Return the helper's raw answer, to be checked and cached by `learn`."""
        return self._ask(question, self._answer_s)

    def learn(self, question: Question, answer: bytes) -> Expansion:
        """Check and cache an answer. Raise InputValueError if the processor refuses the item."""
        expansion = _expansion(_decode(answer, Answer))
        with self._lock:
            self._known.put(question, expansion)
        return expansion

    def _ask(self, question: Question | None, timeout_s: float) -> bytes:
        """Return the raw answer to a question, or without a question the facts."""
        mine, theirs = socket.socketpair()
        with mine:
            with theirs:
                self._send(msgspec.msgpack.encode(question), theirs.fileno())
            mine.settimeout(timeout_s)
            answer = bytearray()
            try:
                while piece := mine.recv(1 << 16):
                    answer += piece
                    if len(answer) > _MAX_ANSWER:
                        raise ProcessorError("the answer of the model's processor is too long")
            except TimeoutError:
                raise ProcessorError("the model's processor did not answer in time") from None
            except ConnectionError:
                answer.clear()
        if not answer:
            raise ProcessorError("the process of the model's processor exited")
        return bytes(answer)

    def _send(self, message: bytes, descriptor: int) -> None:
        with self._starting:
            try:
                socket.send_fds(self._questions or self._start(), [message], [descriptor])
            except ConnectionError:  # the helper has exited
                socket.send_fds(self._start(), [message], [descriptor])
            except TimeoutError:
                raise ProcessorError("too many questions wait for the model's processor") from None

    def _start(self) -> socket.socket:
        """Start a helper. Return the socket for its questions."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.settimeout(1.0)
        with theirs:
            descriptor = theirs.fileno()
            process = subprocess.Popen(  # noqa: S603  (the directory is the operator's)
                [sys.executable, "-P", "-m", _HELPER, str(descriptor), *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | _ENVIRONMENT,
                pass_fds=[descriptor],
                start_new_session=True,  # Ctrl-C must not end the helper before its caller
            )
        if self._questions is not None:
            self._questions.close()
        self._questions = mine
        weakref.finalize(self, _end, mine, process, os.getpid())
        return mine


def _end(questions: socket.socket, process: "subprocess.Popen[bytes]", owner: int) -> None:
    """Disconnect from the helper, which exits after its last client has disconnected."""
    questions.close()
    if os.getpid() == owner:
        process.kill()
        process.wait()


def _decode(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise ProcessorError(f"the answer of the model's processor is malformed: {error}") from None


def _expansion(answer: Answer) -> Expansion:
    if answer.refusal:
        raise InputValueError(f"the model's processor refuses the item: {answer.refusal}")
    if min(chain.from_iterable(answer.runs), default=-1) < 0:
        raise ProcessorError("the model's processor answered without tokens")
    length = sum(count for _, count in answer.runs)
    check_count(length)
    borders = [0, *chain.from_iterable(answer.embeds), length]
    if borders != sorted(borders):
        raise ProcessorError("the model's processor answered with ranges outside of its tokens")
    ids = list(chain.from_iterable(repeat(token, count) for token, count in answer.runs))
    return Expansion(ids, answer.embeds, answer.grid)


def _size_of(question: Question, expansion: Expansion) -> int:
    numbers = len(expansion.token_ids) + len(question.times)
    return 8 * numbers + 128 * len(expansion.embeds) + _ENTRY_BYTES
