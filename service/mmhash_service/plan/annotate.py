"""Insert the hashes of a request's media, in the form that its engine takes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mmhash import Digest
from mmhash.engines.engine import NativeFormat, NoFieldError
from mmhash.errors import InputError
from mmhash.requests import Document, EngineRequest, Place, RequestError, read_for
from mmhash_service.items.context import RequestContext
from mmhash_service.items.hashed import HashedItem, RequestedEngine, names_of, require
from mmhash_service.plan.media import Needs, Resolved
from mmhash_service.problems.problem import InvalidPart, Problem

if TYPE_CHECKING:
    from mmhash.engines import RequestFields
    from mmhash.prompts import Model


class AnnotatedItem(NamedTuple):
    """An item, and the options that the engine's name for it depends on."""

    item: HashedItem
    options: str


def unreadable(error: RequestError) -> Problem:
    """Return the problem of a request that cannot be read."""
    reason = error.reason if error.pointer else f"the body {error.reason}"
    return Problem("invalid-json", [InvalidPart(reason, pointer=error.pointer)])


def read_to_annotate(requested: RequestedEngine, document: Document) -> EngineRequest:
    """Return the request as the engine reads it. Raise a Problem if it cannot carry a hash."""
    require(requested.engine, "annotate")
    if document.form == "completions":
        reason = "a completions request has no media: send it to the engine unchanged"
        raise Problem("no-field", reason=reason)
    try:
        request = read_for(document, requested.engine, requested.version)
    except RequestError as error:
        raise unreadable(error) from error
    except NoFieldError as error:
        raise Problem("no-field", reason=str(error)) from error
    if request.fields is None:
        asked = f"{requested.engine.name} {requested.version} takes no hash"
        raise Problem("no-field", reason=f"{asked} in a request of the form {document.form}")
    return request


def places_to_fill(request: EngineRequest, *, fetches: bool = True) -> list[Place]:
    """Return the places that will get a hash. Content that is not fetched has no known hash."""
    is_native = isinstance(request.fields, NativeFormat)
    if not fetches and is_native and any(place.source.is_remote for place in request.places):
        request.leave_hashes_out()  # the engine takes hashes for all items or for none
        return []
    return [
        place
        for place in request.places
        if place.path is not None and (fetches or not place.source.is_remote)
    ]


def needs_of(request: EngineRequest) -> Needs:
    """Return what must be known about the media to compute the engine's hashes."""
    return Needs(sha256=request.content_prefix is not None)


def put_hashes(
    context: RequestContext,
    request: EngineRequest,
    places: Sequence[Place],
    media: Resolved,
    model: "Model | None",
) -> list[AnnotatedItem]:
    """Put the hashes into their places, and add the tags. Return the item of each place.

    `model` is None if the request's model is not configured.
    """
    (requested,) = context.engines
    takes_hashes = _takes_hashes(request, model)
    items: list[AnnotatedItem] = []
    tags: list[str | None] = []
    fields_of: dict[AnnotatedItem, RequestFields] = {}
    for place in places:
        resolved = media[place.source]
        annotated = AnnotatedItem(resolved.item, request.options(place.source.modality))
        if annotated not in fields_of:
            fields_of[annotated] = names_of(annotated.item, [requested], annotated.options)[
                requested.name
            ]
        items.append(annotated)
        if takes_hashes:
            fields = fields_of[annotated]
            request.fill(place, request.hash_of(place.source, fields, resolved.sha256))
        if context.signer is None:
            continue
        if request.content_prefix is None:
            tags.append(context.tag(*annotated))
        else:
            sha256 = resolved.sha256 if place.source.is_remote else place.source.sha256()
            tags += [] if sha256 is None else [context.signer.tag(Digest("blake3", sha256))]
    if context.signer is not None:
        request.set_tags([tag for tag in dict.fromkeys(tags) if tag is not None])
    if not takes_hashes:
        request.leave_hashes_out()  # the response still lists the items' keys, as a plan does
    return items


def _takes_hashes(request: EngineRequest, model: "Model | None") -> bool:
    if not isinstance(request.fields, NativeFormat):
        return True
    try:
        return model is None or model.family(request.engine.name, request.release).takes_hashes()
    except InputError:  # mmhash cannot plan for the model, so assume that it takes hashes
        return True
