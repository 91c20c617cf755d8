"""Read Envoy's messages (ext_proc.proto), and build the picker's answers.

The names come from the endpoint picker protocol of the Gateway API Inference Extension.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fastapi import Response

from mmhash_service.picker import ext_proc

Header = tuple[bytes, bytes]

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"

_DESTINATION = "x-gateway-destination-endpoint"
_SERVED = f"{_DESTINATION}-served"
_ENDPOINTS = "envoy.lb"
_SUBSET = ("envoy.lb.subset_hint", f"{_DESTINATION}-subset")

MAX_PIECE = 62_000
"""The most body bytes in an answer. Envoy accepts 64 KiB for the whole message."""


class Changes(NamedTuple):
    """The picker's changes to a request."""

    endpoints: Sequence[str]
    """The workers as IP:PORT, the best one first."""
    headers: Iterable[Header] = ()
    removed: Iterable[bytes] = ()
    body: bytes | None = None
    """The new body, or None to keep the client's."""


def read_headers(message: Any) -> list[Header]:
    """Return the headers of a message. Newer releases of Envoy send values as raw bytes."""
    return [(one.name, one.raw_value or one.value) for one in message.headers.headers]


def read_subset(message: Any) -> frozenset[str] | None:
    """Return the endpoints to choose from, or None for all."""
    value = _metadata(message, *_SUBSET)
    if value is None:
        return None
    names = [one.string_value for one in value.list_value.values] or value.string_value.split(",")
    return frozenset(filter(None, map(str.strip, names)))


def read_served(message: Any) -> str:
    """Return the endpoint to which Envoy sent a request, or "" if Envoy does not say."""
    value = _metadata(message, _ENDPOINTS, _SERVED)
    return "" if value is None else value.string_value


def _metadata(message: Any, namespace: str, name: str) -> Any:
    spaces = message.metadata_context.filter_metadata
    if namespace not in spaces or name not in spaces[namespace].fields:
        return None
    return spaces[namespace].fields[name]


def answer_headers(changes: Changes | None = None) -> Any:
    """Answer the headers of a request. Without changes, the answer to the body carries them."""
    answer = ext_proc.ProcessingResponse(request_headers={})
    if changes is not None:
        _apply(changes, answer, answer.request_headers.response)
    return answer


def answer_buffered(changes: Changes) -> Any:
    """Answer the body of a request that Envoy buffers whole."""
    answer = ext_proc.ProcessingResponse(request_body={})
    response = answer.request_body.response
    _apply(changes, answer, response)
    if changes.body is not None:
        response.body_mutation.body = changes.body
    return answer


def answer_streamed(body: bytes, *, ends: bool) -> Iterator[Any]:
    """Answer the body of a request in pieces. Envoy forwards these instead of the client's body."""
    pieces = range(0, max(1, len(body)), MAX_PIECE)
    for start in pieces:
        answer = ext_proc.ProcessingResponse()
        piece = answer.request_body.response.body_mutation.streamed_response
        piece.body = body[start : start + MAX_PIECE]
        piece.end_of_stream = ends and start == pieces[-1]
        yield answer


def answer_unchanged(part: str) -> Any:
    """Answer any other part of a request or response, without changes."""
    return ext_proc.ProcessingResponse(**{part: {}})


def refuse(response: Response) -> Any:
    """Tell Envoy to send this response instead of asking a worker."""
    answer = ext_proc.ProcessingResponse()
    refused = answer.immediate_response
    refused.status.code = response.status_code
    refused.body = bytes(response.body)
    for header in response.raw_headers:
        if header[0] not in {
            b"content-length",
            b"connection",
        }:  # these belong to Envoy's connection
            _set(refused.headers, header)
    return answer


def _apply(changes: Changes, answer: Any, response: Any) -> None:
    endpoints = ",".join(changes.endpoints)
    spaces = answer.dynamic_metadata.fields
    spaces[_ENDPOINTS].struct_value.fields[_DESTINATION].string_value = endpoints
    mutation = response.header_mutation
    _set(mutation, (_DESTINATION.encode(), endpoints.encode()))
    for header in changes.headers:
        _set(mutation, header)
    if changes.body is not None:
        _set(mutation, (b"content-length", b"%d" % len(changes.body)))
    mutation.remove_headers.extend(changes.removed)
    response.clear_route_cache = True


def _set(mutation: Any, header: Header) -> None:
    option = mutation.set_headers.add(append_action="OVERWRITE_IF_EXISTS_OR_ADD")
    option.header.name, option.header.raw_value = header
