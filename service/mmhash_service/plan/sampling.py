"""The sampling parameters of a request, as vLLM's render server returns them in a given release.

vLLM reads the members with pydantic, so this module uses the same types. vLLM omits members that
have their default values, except numbers that it compares by identity. Ranges are not checked here:
the worker that gets the request checks them.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mmhash.requests import Form

_Int64 = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
_Salt = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^@/\\\x00]*$")]
_NoneIsZero = BeforeValidator(lambda value: 0 if value is None else value)

_LEAST_TEMPERATURE = 0.01
_GREEDY = 1e-5
_LARGEST_BIAS = 100.0

# vLLM's own defaults, which the model's generation_config.json replaces.
_DEFAULTS: dict[str, float] = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
}
_PENALTIES = frozenset({"presence_penalty", "frequency_penalty"})

# The members of other forms that a chat has too. All other members are ignored.
_COPIED = (
    *("model", "temperature", "top_p", "top_k", "stream", "watermarking", "cache_salt"),
    *("kv_transfer_params", "ec_transfer_params", "vllm_xargs", "mm_payload", "return_mm_kwargs"),
)
_OF_MESSAGES = (*_COPIED, "max_tokens", "stop_sequences")
_OF_RESPONSES = (
    *(*_COPIED, *_PENALTIES, "repetition_penalty", "min_p", "seed", "logit_bias"),
    *("max_output_tokens", "stop", "stop_token_ids", "ignore_eos", "include_stop_str_in_output"),
    *("skip_special_tokens", "priority", "request_id", "structured_outputs"),
)
_RENAMED = {"max_output_tokens": "max_tokens", "stop_sequences": "stop"}


class Release(NamedTuple):
    """How a release's answers differ from other releases' answers."""

    answer: dict[str, Any]
    """Extra members of an answer, at their defaults."""
    features: dict[str, Any]
    """Extra members of the answer's features."""
    watermarking: tuple[bool | None, ...]
    """The values of `watermarking` that the release omits."""
    defaults: frozenset[str]
    """The members of generation_config.json that the release reads."""


_OLDER = Release(
    answer={"assistant_tokens_mask": None},
    features={},
    watermarking=(None, True, False),
    defaults=frozenset({*_DEFAULTS, "max_new_tokens"}) - _PENALTIES,
)
_0_30 = _OLDER._replace(
    answer={"assistant_tokens_mask": None, "return_token_ids": None},
    features={"mm_metadata": None},
    watermarking=(None, True),
)
_0_32 = Release(
    answer={
        "reasoning_ended": None,
        "reasoning_parser_kwargs": None,
        "return_token_ids": None,
        "output_mode": "tokens",
    },
    features={"mm_metadata": None},
    watermarking=(None,),
    defaults=_0_30.defaults | _PENALTIES,
)
RELEASES: Mapping[str, Release] = {"0.28.0": _OLDER, "0.30.0": _0_30, "0.32.0": _0_32}
"""The releases whose answers were compared with ours."""


class RenderRefusal(Exception):  # noqa: N818  (an answer)
    """A request that vLLM refuses, in its words, or that only vLLM can answer (501)."""

    def __init__(self, status: int, message: str, parameter: str | None = None) -> None:
        self.status, self.parameter = status, parameter
        super().__init__(message)


class StreamOptions(BaseModel):
    """The options of a stream."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class Sampling(BaseModel):
    """The members of a chat or completion that do not affect its prompt."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)
    no_extra_args: ClassVar[dict[str, Any] | None] = None

    model: str | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    n: int | None = 1
    seed: _Int64 | None = None
    stop: str | list[str] | None = []
    stop_token_ids: list[int] | None = []
    bad_words: list[str] = []
    allowed_token_ids: list[int] | None = None
    logit_bias: dict[int, float] | None = None
    min_tokens: int = 0
    max_tokens: int | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    watermarking: bool | None = None
    thinking_token_budget: int | None = None
    stream_interval: int | None = None
    routed_experts_prompt_start: Annotated[int, Field(ge=0)] = 0
    vllm_xargs: dict[str, Any] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    echo: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    cache_salt: _Salt | None = None
    priority: _Int64 = 0
    request_id: str | None = None
    # vLLM's default is "tensors", but a router that forwards its client's request needs no tensors.
    mm_payload: Literal["tensors", "none"] = "none"
    return_mm_kwargs: bool | None = None
    # This server cannot answer these as vLLM does, so it refuses them by name.
    use_beam_search: bool = False
    return_token_offsets: bool | None = None
    return_assistant_tokens_mask: bool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    repetition_detection: dict[str, Any] | None = None

    @property
    def output_limit(self) -> int | None:
        """The most tokens that the caller asks for."""
        return self.max_tokens

    @property
    @abstractmethod
    def output_logprobs(self) -> int | None:
        """How many log probabilities to return for each new token."""

    @property
    def echoed_logprobs(self) -> int | None:
        """How many log probabilities to return for each prompt token, if the prompt is echoed."""
        return self.output_logprobs

    def refuse_unanswerable(self, *, has_media: bool) -> None:
        """Raise RenderRefusal for anything that only vLLM can answer."""
        if self.use_beam_search:  # vLLM refuses it too
            message = "use_beam_search is not supported by the render endpoint"
            raise RenderRefusal(400, message, "use_beam_search")
        refused = {
            "return_token_offsets": self.return_token_offsets,
            "return_assistant_tokens_mask": self.return_assistant_tokens_mask,
            "structured_outputs": self.structured_outputs,
            "repetition_detection": self.repetition_detection,
            "response_format": (self.response_format or {}).get("type", "text") != "text",
        }
        for name in [name for name, is_given in refused.items() if is_given]:
            raise RenderRefusal(501, f"{name} is not supported by this render server", name)
        is_alias = self.return_mm_kwargs is True and "mm_payload" not in self.model_fields_set
        if has_media and (self.mm_payload == "tensors" or is_alias):
            message = 'mm_payload "tensors" needs the model\'s image processor: send "none"'
            raise RenderRefusal(400, message, "mm_payload")

    def answer(self, release: Release) -> dict[str, Any]:
        """Return the members of an answer that not all releases have."""
        return dict(release.answer)

    def params(
        self, max_tokens: int, defaults: Mapping[str, Any], release: Release
    ) -> dict[str, Any]:
        """Return the parameters, from the members, the model's defaults and the room for output."""
        values = {
            name: defaults.get(name, default) if (own := getattr(self, name)) is None else own
            for name, default in _DEFAULTS.items()
        }
        if 0 < values["temperature"] < _LEAST_TEMPERATURE:
            values["temperature"] = _LEAST_TEMPERATURE
        if values["temperature"] < _GREEDY:
            for name in ("top_p", "top_k", "min_p"):
                del values[name]
        elif not values["top_k"]:
            del values["top_k"]
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        prompt_logprobs = self.prompt_logprobs
        if prompt_logprobs is None and self.echo:
            prompt_logprobs = self.echoed_logprobs
        held = 0 if self.include_stop_str_in_output else max(map(len, stop), default=1) - 1
        extra = dict(self.vllm_xargs or {})
        extra |= {
            name: value
            for name in ("kv_transfer_params", "ec_transfer_params")
            if (value := getattr(self, name))
        }
        given = {
            "n": (self.n or 1, 1),
            "seed": (None if self.seed == -1 else self.seed, None),
            "ignore_eos": (self.ignore_eos, False),
            "max_tokens": (max_tokens, 16),
            "min_tokens": (self.min_tokens, 0),
            "logprobs": (None if self.logprob_token_ids else self.output_logprobs, None),
            "prompt_logprobs": (prompt_logprobs, None),
            "logprob_token_ids": (self.logprob_token_ids or None, None),
            "skip_special_tokens": (self.skip_special_tokens, True),
            "spaces_between_special_tokens": (self.spaces_between_special_tokens, True),
            "include_stop_str_in_output": (self.include_stop_str_in_output, False),
            "stream_interval": (self.stream_interval, None),
            "output_text_buffer_length": (held, 0),
            "logit_bias": (self._biases(), None),
            "allowed_token_ids": (self.allowed_token_ids, None),
            "extra_args": (extra or self.no_extra_args, None),
            "thinking_token_budget": (self.thinking_token_budget, None),
            "routed_experts_prompt_start": (self.routed_experts_prompt_start, 0),
        }
        if self.watermarking not in release.watermarking:
            values["watermarking"] = self.watermarking
        return values | {
            **{name: value for name, (value, default) in given.items() if value != default},
            "stop": stop,
            "stop_token_ids": list(dict.fromkeys(self.stop_token_ids or ())),
            "bad_words": list(dict.fromkeys(self.bad_words)),
            "output_kind": 1 if self.stream else 2,
            "skip_clone": True,
            "skip_reading_prefix_cache": prompt_logprobs is not None,
        }

    def _biases(self) -> dict[int, float] | None:
        if self.logit_bias is None:
            return None
        limit = _LARGEST_BIAS
        return {token: min(limit, max(-limit, one)) for token, one in self.logit_bias.items()}


class ChatSampling(Sampling):
    """The sampling members of a chat."""

    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, _NoneIsZero] = 0
    echo: bool = False
    include_reasoning: bool = True

    @property
    def output_limit(self) -> int | None:
        """The most tokens that the caller asks for."""
        longest = self.max_completion_tokens
        return self.max_tokens if longest is None else longest

    @property
    def output_logprobs(self) -> int | None:
        """How many log probabilities to return for each new token."""
        return self.top_logprobs if self.logprobs else None

    @property
    def echoed_logprobs(self) -> int | None:
        """How many log probabilities to return for each prompt token, if the prompt is echoed."""
        return self.top_logprobs

    def answer(self, release: Release) -> dict[str, Any]:
        """Return the members of an answer that not all releases have."""
        made = super().answer(release)
        if "reasoning_ended" in made and not self.include_reasoning:
            made["reasoning_ended"] = True
        return made


class ResponsesSampling(ChatSampling):
    """The sampling members of a Responses request, under their names in a chat."""

    no_extra_args = {}


class CompletionSampling(Sampling):
    """The sampling members of a completion."""

    max_tokens: int | None = 16
    n: int = 1
    logprobs: int | None = None
    bad_words: list[str] = []

    @property
    def output_logprobs(self) -> int | None:
        """How many log probabilities to return for each new token."""
        return self.logprobs


def read_sampling(form: Form, members: Mapping[str, Any]) -> Sampling:
    """Read the sampling members. Raise RenderRefusal or ValidationError for a wrong one."""
    if form == "completions":
        return CompletionSampling.model_validate(members)
    if form == "responses":
        return ResponsesSampling.model_validate(_of_responses(members))
    return ChatSampling.model_validate(_of_messages(members) if form == "messages" else members)


def _of_messages(members: Mapping[str, Any]) -> dict[str, Any]:
    made = _as_chat(members, _OF_MESSAGES)
    thinking = members.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "enabled":
        made["thinking_token_budget"] = thinking.get("budget_tokens")
    if made.get("stream"):
        made["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return made


def _of_responses(members: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("previous_response_id", "prompt"):
        if members.get(name) is not None:
            message = f"{name} is not supported by the stateless render endpoint"
            raise RenderRefusal(400, message, name)
    made = _as_chat(members, _OF_RESPONSES)
    included = members.get("include")
    if isinstance(included, list) and "message.output_text.logprobs" in included:
        made |= {"logprobs": True, "top_logprobs": members.get("top_logprobs", 0)}
    text = members.get("text")
    if isinstance(text, dict) and text.get("format") is not None:
        made["response_format"] = text["format"]
    return made


def _as_chat(members: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {_RENAMED.get(name, name): members[name] for name in names if name in members}
