"""`POST …/render` and `/tokenize`: answer as `vllm launch render` does, without tensors."""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from http import HTTPStatus
from itertools import accumulate, pairwise
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from mmhash.engines import vllm
from mmhash.engines.checks import MAX_TOKENS
from mmhash.prompts import Model, Plan
from mmhash.prompts.options import complete
from mmhash.requests import Document, ShortText
from mmhash.requests.members import read_object
from mmhash_service.bodies.json_body import read_json
from mmhash_service.bodies.validation import reason_of
from mmhash_service.endpoints.long_response import LongResponse
from mmhash_service.endpoints.openapi import json_body
from mmhash_service.gateway.request import is_light
from mmhash_service.items.context import RequestContext, build_context
from mmhash_service.items.schema import HashQuery
from mmhash_service.plan.request import Planning, open_document
from mmhash_service.plan.sampling import (
    RELEASES,
    Release,
    RenderRefusal,
    Sampling,
    read_sampling,
)
from mmhash_service.problems.catalogue import PROBLEMS
from mmhash_service.problems.problem import Problem
from mmhash_service.resources import Resources
from mmhash_service.settings import Settings

router = APIRouter()

_OPENAPI = json_body(None)

# Find and decode the base64 of longer bodies in a thread, as in the gateway.
_INLINE_MAX = 1 << 20

# The prefix of an answer's request_id. Responses requests have their own.
_PREFIXES = {"chat": "chatcmpl-", "messages": "chatcmpl-", "completions": "cmpl-"}


class _Call(NamedTuple):
    """A request to render, and what is needed to answer it."""

    context: RequestContext
    settings: Settings
    name: str
    model: Model
    request_id: str
    is_light: bool

    @property
    def release(self) -> Release:
        """How the release's answers differ from other releases'."""
        return RELEASES[self.settings.render_version]

    @property
    def max_model_len(self) -> int:
        """The most tokens that a prompt and its output may have together."""
        return self.settings.models[self.name].max_model_len or self.model.max_model_len

    @property
    def model_id(self) -> str:
        """The engine's own name for the model."""
        source = self.settings.models[self.name]
        return source.model_id or str(source.path)

    async def plan(self, document: Document) -> Plan:
        """Plan a request, with the names that the engine computes for its images."""
        options = complete(
            # No prompt fills a block of this size, so no block is named, whatever the seed.
            block_size=MAX_TOKENS,
            seed="0",
            hashes="engine",
            model_id=self.model_id,
            tenant=self.context.tenant_secret,
        )
        return await Planning(
            self.context,
            self.model,
            document,
            options,
            lambda _planner, plan, _media: plan,
            fetches=True,
            is_light=self.is_light,
        ).run()

    async def render(self, document: Document) -> Any:
        """Return a `GenerateRequest`, or a list of them for completions."""
        sampling = _read_sampling(document)
        plan = await self.plan(document)
        sampling.refuse_unanswerable(has_media=bool(plan.items))
        features = _features(plan, self.model_id)
        begin = _PREFIXES.get(document.form, "" if sampling.request_id else "resp_")
        name = begin + (sampling.request_id or self.request_id)
        ends = list(accumulate(plan.lengths, initial=0))
        prompts = [plan.token_ids[start:end] for start, end in pairwise(ends)]
        options = sampling.stream_options if sampling.stream else None
        is_single, is_responses = len(prompts) == 1, document.form == "responses"
        answers = [
            {
                "request_id": name if is_single else f"{name}-{number}",
                "token_ids": prompt,
                "token_offsets": None,
                "features": features and features | self.release.features,
                "content_parts": None,
                "sampling_params": self._params(sampling, len(prompt)),
                "model": sampling.model,
                "stream": bool(sampling.stream),
                "stream_options": options and options.model_dump(),
                "cache_salt": sampling.cache_salt,
                "priority": sampling.priority,
                "kv_transfer_params": sampling.kv_transfer_params if is_responses else None,
                "ec_transfer_params": sampling.ec_transfer_params if is_responses else None,
                **sampling.answer(self.release),
            }
            for number, prompt in enumerate(prompts)
        ]
        return answers if document.form == "completions" else answers[0]

    def _params(self, sampling: Sampling, count: int) -> dict[str, Any]:
        """Return the sampling parameters for a prompt of `count` tokens."""
        room = self.max_model_len - count
        if room < 0:
            message = (
                f"This model's maximum context length is {self.max_model_len} tokens. However, your"
                f" prompt contains at least {count} input tokens, which exceeds this limit even"
                " without any output tokens. Please reduce the length of the input prompt."
            )
            raise RenderRefusal(400, message, "input_tokens")
        limit = sampling.output_limit
        if limit is not None and limit > self.max_model_len:
            message = f"={limit} cannot be greater than max_model_len={self.max_model_len}."
            raise RenderRefusal(400, f"max_tokens{message}", "max_tokens")
        defaults = _generation_defaults(
            self.settings.models[self.name].path, self.settings.render_version
        )
        most = defaults.get("max_new_tokens") if limit is None else limit
        return sampling.params(room if most is None else min(room, most), defaults, self.release)


@router.post("/v1/chat/completions/render", openapi_extra=_OPENAPI, response_model=None)
@router.post("/v1/completions/render", openapi_extra=_OPENAPI, response_model=None)
@router.post("/v1/messages/render", openapi_extra=_OPENAPI, response_model=None)
@router.post("/v1/responses/render", openapi_extra=_OPENAPI, response_model=None)
async def render(request: Request) -> Response:
    """Return a prompt's token ids, and the names and places of its images in the engine."""
    path = request.scope["path"].removesuffix("/render")
    return await _answer(request, path, _Call.render)


@router.post("/tokenize", openapi_extra=_OPENAPI, response_model=None)
async def tokenize(request: Request) -> Response:
    """Return the token ids of a text, or of a chat."""
    return await _answer(request, None, _tokenize)


async def _tokenize(call: _Call, document: Document) -> Any:
    if not {"prompt", "messages"} & document.members.keys():
        given = ", ".join(map(repr, document.members)) or "no members"
        message = f"prompt or messages is required, and the body has {given[:200]}"
        raise RenderRefusal(400, message, "body.prompt")
    plan = await call.plan(document)
    tokens = plan.token_ids
    texts = None
    if document.members.get("return_token_strs"):
        texts = [call.model.files.encoder.token_text(one) for one in tokens]
    return {
        "count": len(tokens),
        "max_model_len": call.max_model_len,
        "tokens": tokens,
        "token_strs": texts,
    }


def _features(plan: Plan, model_id: str) -> dict[str, Any] | None:
    """Return the names and places of the items by modality, or None without items."""
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
    }


def _names(plan: Plan, model_id: str) -> list[str]:
    """Return vLLM's names of the items. A caller's uuid replaces the name by file."""
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
        if isinstance(given, str) and item.modality != "video":
            names += vllm.identifiers(item.modality, [b""], uuids=[given], **options)
        elif item.engine_name is not None:
            names.append(item.engine_name)
        else:
            message = (
                f"The hash of item {number} depends on its decoded content: this render server"
                " cannot name it."
            )
            raise RenderRefusal(501, message)
    return names


@cache  # the defaults are read at a model's first request
def _generation_defaults(directory: Path, version: str) -> dict[str, Any]:
    """Return the sampling defaults of a model's generation_config.json."""
    path = directory / "generation_config.json"
    values = json.loads(path.read_text()) if path.is_file() else {}
    names = RELEASES[version].defaults
    return {name: values[name] for name in names if values.get(name) is not None}


@cache
def _query(version: str) -> HashQuery:
    return HashQuery(engines=f"vllm@{version}")


async def _answer(
    request: Request,
    path: str | None,
    render: Callable[[_Call, Document], Awaitable[Any]],
) -> Response:
    resources = Resources.of(request)
    try:
        with resources.limits.admit() as admission:
            settings = resources.settings
            context = build_context(resources, request, _query(settings.render_version), admission)
            text = await read_json(request, settings, admission)
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
            call = _Call(context, settings, name, model, request_id, light)
            payload = msgspec.json.encode(await render(call, document))
            return LongResponse(payload, resources.limits)
    except RenderRefusal as refusal:
        return _error(refusal.status, str(refusal), refusal.parameter)
    except Problem as problem:
        return _error_of(problem)


def _model_name(resources: Resources, document: Document) -> str:
    """Return the name of the requested model, by default the only model."""
    names = resources.models.names
    name = document.model or (names[0] if len(names) == 1 else "")
    if name not in names:
        known = ", ".join(names)
        message = f"The model `{name}` does not exist. Valid aliases: {known}."
        raise RenderRefusal(404, message, "model")
    return name


def _read_sampling(document: Document) -> Sampling:
    try:
        return read_sampling(document.form, document.members)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(step) for step in ("body", *first["loc"]))
        raise RenderRefusal(400, f"{name}: {reason_of(first)}", name) from error


def _error_of(problem: Problem) -> Response:
    spec = PROBLEMS[problem.name]
    message = ". ".join(filter(None, [problem.reason, spec.detail]))
    # If only this server lacks a feature, the request is not wrong.
    statuses = {"unplannable-prompt": 501, "unplannable-item": 501, "invalid-json": 400}
    return _error(statuses.get(problem.name, spec.status), message)


def _error(status: int, message: str, parameter: str | None = None) -> Response:
    kind = HTTPStatus(status).phrase.replace(" ", "") + "Error"
    error = {"message": message, "type": kind, "param": parameter, "code": status}
    content = msgspec.json.encode({"error": error})
    return Response(content, status, media_type="application/json")
