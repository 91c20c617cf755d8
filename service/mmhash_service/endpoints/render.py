"""`POST …/render` and `/tokenize`: a prompt as vLLM's render server answers it, without tensors.

The forms of requests and answers are those of `vllm launch render` 0.32.0.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from mmhash.engines import vllm
from mmhash.engines.checks import MAX_TOKENS
from mmhash.prompts import Model, Plan
from mmhash.prompts.members import read_object
from mmhash.requests import Document, ShortText
from mmhash_service.bodies.json_body import read_json
from mmhash_service.endpoints.long_response import LongResponse
from mmhash_service.endpoints.openapi import json_body
from mmhash_service.gateway.request import Naming, RoutedRequest, is_light, plan_for_workers
from mmhash_service.gateway.worker_spec import EngineSpec
from mmhash_service.items.context import RequestContext, build_context
from mmhash_service.items.schema import HashQuery
from mmhash_service.plan.request import open_document
from mmhash_service.plan.sampling import (
    GENERATION_DEFAULTS,
    ChatSampling,
    CompletionSampling,
    Sampling,
    SamplingError,
)
from mmhash_service.problems.catalogue import PROBLEMS
from mmhash_service.problems.problem import Problem
from mmhash_service.resources import Resources
from mmhash_service.settings import Settings

router = APIRouter()

ENGINE = "vllm@0.32.0"
"""The release whose answers these are."""

_OPENAPI = json_body(None)

# The base64 of a longer body is found and decoded in a thread, as in the gateway.
_INLINE_MAX = 1 << 20

_QUERY = HashQuery(engines=ENGINE)


class RenderRefusal(Exception):  # noqa: N818  (an answer)
    """A request that is answered by an error as vLLM spells it."""

    def __init__(self, status: int, message: str, parameter: str | None = None) -> None:
        self.status, self.parameter = status, parameter
        super().__init__(message)


class _Call(NamedTuple):
    """A request to render, and what answers it."""

    context: RequestContext
    settings: Settings
    name: str
    model: Model
    request_id: str
    is_light: bool

    @property
    def max_model_len(self) -> int:
        """The most tokens of a prompt and its output."""
        own = self.settings.render_max_model_len
        return self.model.max_model_len if own is None else own

    @property
    def model_id(self) -> str:
        """The engine's own name of the model."""
        return self.settings.render_model_id or str(self.settings.models[self.name].path)

    async def plan(self, document: Document) -> Plan:
        """Return the plan of a prompt, whose images have the engine's own names."""
        # No prompt has a block of this size: the names of blocks are not asked for.
        engine = EngineSpec(ENGINE, MAX_TOKENS, model_id=self.model_id)
        routed = RoutedRequest(document.text, document, is_light=self.is_light)
        planned = await plan_for_workers(
            self.context, self.model, Naming(engine), routed, lambda *_: {}, fetches=True
        )
        return planned.plan

    async def render(self, document: Document, sampling: Sampling, prefix: str) -> dict[str, Any]:
        """Return a prompt as `GenerateRequest` has it."""
        plan = await self.plan(document)
        sampling.refuse_unknown(has_media=bool(plan.items))
        room = self.max_model_len - len(plan.token_ids)
        if room < 0:
            count = len(plan.token_ids)
            message = (
                f"This model's maximum context length is {self.max_model_len} tokens. However, your"
                f" prompt contains at least {count} input tokens, which exceeds this limit even"
                " without any output tokens. Please reduce the length of the input prompt."
            )
            raise RenderRefusal(400, message, "input_tokens")
        defaults = _generation_defaults(self.settings.models[self.name].path)
        limit = sampling.output_limit
        if limit is not None and limit > self.max_model_len:
            message = f"={limit} cannot be greater than max_model_len={self.max_model_len}."
            raise RenderRefusal(400, f"max_tokens{message}", "max_tokens")
        most = defaults.get("max_new_tokens") if limit is None else limit
        params = sampling.params(room if most is None else min(room, most), defaults)
        options = sampling.stream_options if sampling.stream else None
        return {
            "request_id": f"{prefix}-{sampling.request_id or self.request_id}",
            "token_ids": plan.token_ids,
            "token_offsets": None,
            "features": _features(plan, self.model_id),
            "content_parts": None,
            "sampling_params": params,
            "model": sampling.model,
            "reasoning_ended": None if getattr(sampling, "include_reasoning", True) else True,
            "reasoning_parser_kwargs": None,
            "return_token_ids": None,
            "output_mode": "tokens",
            "stream": bool(sampling.stream),
            "stream_options": options and options.model_dump(),
            "cache_salt": sampling.cache_salt,
            "priority": sampling.priority,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
        }


@router.post("/v1/chat/completions/render", openapi_extra=_OPENAPI, response_model=None)
async def render_chat(request: Request) -> Response:
    """Return a chat's prompt, the engine's names of its images, and where they are in it."""
    return await _answer(request, "/v1/chat/completions", _render_chat)


@router.post("/v1/completions/render", openapi_extra=_OPENAPI, response_model=None)
async def render_completions(request: Request) -> Response:
    """Return the token ids of each prompt of a completion."""
    return await _answer(request, "/v1/completions", _render_completions)


@router.post("/v1/messages/render", openapi_extra=_OPENAPI, response_model=None)
async def render_messages(request: Request) -> Response:
    """Return the prompt of a Messages request as of a chat."""
    return await _answer(request, "/v1/messages", _render_messages)


@router.post("/tokenize", openapi_extra=_OPENAPI, response_model=None)
async def tokenize(request: Request) -> Response:
    """Return the token ids of a text, or of a chat."""
    return await _answer(request, None, _tokenize)


async def _render_chat(call: _Call, document: Document) -> Any:
    if document.members.get("messages") == []:
        raise RenderRefusal(400, "messages has at least one message")
    sampling = _validated(ChatSampling, document.members)
    return await call.render(document, sampling, "chatcmpl")


async def _render_messages(call: _Call, document: Document) -> Any:
    body = document.members
    names = {"max_tokens": "max_completion_tokens", "stop_sequences": "stop"}
    known = ("model", "temperature", "top_p", "top_k", "stream", "cache_salt", "mm_payload")
    members = {names.get(name, name): body[name] for name in (*names, *known) if name in body}
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "enabled":
        members["thinking_token_budget"] = thinking.get("budget_tokens")
    if members.get("stream"):
        members["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return await call.render(document, _validated(ChatSampling, members), "chatcmpl")


async def _render_completions(call: _Call, document: Document) -> Any:
    sampling = _validated(CompletionSampling, document.members)
    documents = _prompts_of(document)
    answers = []
    for number, one in enumerate(documents):
        prefix = "cmpl"
        answer = await call.render(one, sampling, prefix)
        if len(documents) > 1:
            answer["request_id"] += f"-{number}"
        answers.append(answer)
    return answers


def _prompts_of(document: Document) -> list[Document]:
    """Return a document for each prompt of a completion."""
    members = document.whole(document.members)
    prompts = members.get("prompt")
    if not isinstance(prompts, list) or not prompts or isinstance(prompts[0], int):
        return [document]
    return [
        Document(msgspec.json.encode({**members, "prompt": one}), "completions") for one in prompts
    ]


async def _tokenize(call: _Call, document: Document) -> Any:
    if not {"prompt", "messages"} & document.members.keys():
        raise RenderRefusal(400, "prompt or messages is required", "body.prompt")
    plan = await call.plan(document)
    tokens = plan.token_ids
    texts = None
    if document.members.get("return_token_strs"):
        texts = [call.model.token_text(one) for one in tokens]
    return {
        "count": len(tokens),
        "max_model_len": call.max_model_len,
        "tokens": tokens,
        "token_strs": texts,
    }


def _features(plan: Plan, model_id: str) -> dict[str, Any] | None:
    """Return the names and places of the items by modality; None if there are none."""
    hashes: dict[str, list[str]] = {}
    places: dict[str, list[dict[str, int]]] = {}
    for name, item in zip(_names(plan, model_id), plan.items, strict=True):
        hashes.setdefault(item.modality, []).append(name)
        place = {"offset": item.start, "length": item.end - item.start}
        places.setdefault(item.modality, []).append(place)
    if not hashes:
        return None
    return {
        "mm_hashes": hashes,
        "mm_placeholders": places,
        "kwargs_data": None,
        "mm_metadata": None,
    }


def _names(plan: Plan, model_id: str) -> list[str]:
    """Return vLLM's identifiers of the items: a caller's uuid comes before the file's name."""
    request = plan.annotated
    options: Mapping[str, Any] = {
        "model_id": model_id,
        "processor_kwargs": read_object(request.members, "mm_processor_kwargs"),
        "media_io_kwargs": read_object(request.members, "media_io_kwargs"),
        "version": request.release,
    }
    names = []
    for number, (place, item) in enumerate(zip(request.places, plan.items, strict=True)):
        holder: Any = request.document.members if place.path is not None else {}
        for step in place.path or ():
            holder = holder[step]
        given = holder.get(place.name)
        if isinstance(given, str):
            names += vllm.identifiers(item.modality, [b""], uuids=[given], **options)
        elif item.engine_name is not None:
            names.append(item.engine_name)
        else:
            message = (
                f"The hash of image {number} depends on its pixels: it is one of the rare images"
                " that this render server cannot name."
            )
            raise RenderRefusal(501, message)
    return names


@cache  # a model's defaults are those of its files at the first request
def _generation_defaults(directory: Path) -> dict[str, Any]:
    """Return the sampling defaults of a model's generation_config.json."""
    path = directory / "generation_config.json"
    values = json.loads(path.read_text()) if path.is_file() else {}
    return {name: values[name] for name in GENERATION_DEFAULTS if values.get(name) is not None}


async def _answer(
    request: Request,
    path: str | None,
    render: Callable[[_Call, Document], Awaitable[Any]],
) -> Response:
    resources = Resources.of(request)
    try:
        with resources.limits.admit() as admission:
            context = build_context(request, _QUERY, admission)
            text = await read_json(request, resources.settings, admission)
            admission.hold(2 * len(text))
            is_short = len(text) <= _INLINE_MAX
            short = ShortText(text) if is_short else await resources.work.run(ShortText, text)
            light = is_light(short.text)
            if light:
                document = open_document(short, path)
            else:
                document = await resources.work.run(open_document, short, path)
            name = _model_name(resources, document)
            request_id = request.headers.get("x-request-id") or token_hex(8)
            model = resources.models.find(name)
            call = _Call(context, resources.settings, name, model, request_id, light)
            payload = msgspec.json.encode(await render(call, document))
            return LongResponse(payload, resources.limits)
    except RenderRefusal as refusal:
        return _error(refusal.status, str(refusal), refusal.parameter)
    except SamplingError as error:
        return _error(error.status, str(error), error.name)
    except Problem as problem:
        return _error_of(problem)


def _model_name(resources: Resources, document: Document) -> str:
    """Return the name of the requested model; without one it is the only model."""
    names = resources.models.names
    name = document.model or (names[0] if len(names) == 1 else "")
    if name not in names:
        known = ", ".join(names)
        message = f"The model `{name}` does not exist. Valid aliases: {known}."
        raise RenderRefusal(404, message, "model")
    return name


def _validated(kind: type[Sampling], members: Mapping[str, Any]) -> Any:
    try:
        return kind.model_validate(members)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(step) for step in ("body", *first["loc"]))
        raise RenderRefusal(400, f"{name}: {first['msg']}", name) from error


def _error_of(problem: Problem) -> Response:
    spec = PROBLEMS[problem.name]
    reasons = [problem.reason, *(part.reason for part in problem.parts)]
    message = " ".join([spec.detail, *filter(None, reasons)])
    # What only this server cannot do is no error of the request.
    statuses = {"unplannable-prompt": 501, "unplannable-item": 501, "invalid-json": 400}
    return _error(statuses.get(problem.name, spec.status), message)


def _error(status: int, message: str, parameter: str | None = None) -> Response:
    kind = HTTPStatus(status).phrase.replace(" ", "") + "Error"
    error = {"message": message, "type": kind, "param": parameter, "code": status}
    content = msgspec.json.encode({"error": error})
    return Response(content, status, media_type="application/json")
