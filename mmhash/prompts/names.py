"""The names of a request's items: as the request carries them, and as block keys use them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from mmhash.digest import Digest, unchecked_digest
from mmhash.engines import vllm
from mmhash.engines.engine import RequestFields
from mmhash.engines.options import SGLANG_OPTIONS
from mmhash.errors import InputValueError
from mmhash.framing import frame
from mmhash.prompts.families.family import Family
from mmhash.prompts.headers import ImageHeader
from mmhash.prompts.items import Media
from mmhash.prompts.options import PlanOptions
from mmhash.requests import EngineRequest
from mmhash.requests.members import read_object

_OPTIONS = frozenset(SGLANG_OPTIONS)
_PART_OPTIONS = _OPTIONS | {"max_long_side_pixel"}

# Members of a media object that are its content or identify it, and "detail", which has a default.
_WITHOUT_OPTIONS = frozenset({"url", "content_hash", "detail"})


class ItemName(NamedTuple):
    """The names of an item."""

    key: Digest
    """The key that the request carries."""
    block_key: Digest
    """The key that the engine's block keys use."""
    fields: RequestFields
    """The request fields that carry the key."""


class FileNaming(NamedTuple):
    """How vLLM names images that have no uuid: everything that counts besides the file."""

    release: str
    model_id: str
    algorithm: str
    options: bytes
    """The request's `mm_processor_kwargs` and `media_io_kwargs`, as JSON."""

    def name(self, file: bytes | bytearray | memoryview, header: ImageHeader) -> str | None:
        """Return the name of an image, or None if the name depends on the decoded pixels."""
        if header.is_rgb is None:
            return None
        processing, media_io = msgspec.json.decode(self.options)
        return vllm.image_identifier(
            file,
            is_rgb=header.is_rgb,
            is_keyed=header.is_keyed,
            model_id=self.model_id,
            processor_kwargs=processing,
            media_io_kwargs=media_io,
            version=self.release,
            algorithm=self.algorithm,
        )


def wants_engine_names(request: EngineRequest, options: PlanOptions) -> bool:
    """Return True if vLLM is to name images itself. Tenants' images need names of their own."""
    is_vllm = request.engine.name == "vllm"
    return is_vllm and options["hashes"] == "engine" and options["tenant"] is None


def file_naming(request: EngineRequest, options: PlanOptions) -> FileNaming | None:
    """Return how vLLM names images itself, or None if its names are unwanted or not computable."""
    if not wants_engine_names(request, options):
        return None
    if options["of"] == "pixels" or options["model_id"] is None:
        return None
    if not (request.places and vllm.hashes_files(request.release)):
        return None
    given = msgspec.json.encode(_option_members(request))
    return FileNaming(request.release, options["model_id"], options["mm_hasher_algorithm"], given)


def _option_members(request: EngineRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the request's `mm_processor_kwargs` and `media_io_kwargs`."""
    members = request.members
    return read_object(members, "mm_processor_kwargs"), read_object(members, "media_io_kwargs")


def name_by_engine(request: EngineRequest, media: Sequence[Media]) -> list[ItemName]:
    """Return vLLM's own names. The list is empty unless all names are known."""
    names = []
    for one in media:
        if one.engine_name is None:
            return []
        block_key = unchecked_digest("blake3", bytes.fromhex(one.engine_name))
        names.append(ItemName(one.key, block_key, _fields(request, one.key)))
    return names


def name_by_file(
    request: EngineRequest, options: PlanOptions, media: Sequence[Media]
) -> list[ItemName]:
    """Return the names that SGLang gives to images by their files.

    The Rust server names a file by its digest, the plugin by its key.
    """
    server = options["server"]
    if media and server == "rust" and request.document.form != "generate":
        raise InputValueError("SGLang's Rust server takes images in /generate only")
    names = []
    for one in media:
        file = one.file_digest
        if file is None or file.algorithm != "blake3":
            raise InputValueError(
                "SGLang's server hashes the file: pass its BLAKE3 digest as file_digest"
            )
        if server == "mmhash":
            file = frame("bytes", "", (), file, tenant=options["tenant"])
        names.append(ItemName(one.key, file, _fields(request, file)))
    return names


def has_media_options(request: EngineRequest) -> bool:
    """Return True if media may have options.

    SGLang's plugin also hashes these options, as it has parsed them, into the names of media. So a
    plan for the plugin names no block from such media on.
    """
    if not _OPTIONS.isdisjoint(request.members):
        return True
    if request.document.form != "chat":
        return False
    return not all(map(_is_plain, request.parts))


def _is_plain(part: dict[str, Any]) -> bool:
    """Return True if neither a chat's content part nor its media has options."""
    media = part.get("image_url", {})
    if isinstance(media, str):  # in a Responses request
        media = {"url": media, "detail": part.get("detail")}
    detail = media.get("detail") or "auto"
    has_option = not (media.keys() <= _WITHOUT_OPTIONS and _PART_OPTIONS.isdisjoint(part))
    return not has_option and detail in ("auto", "default")


def name_by_key(
    family: Family, request: EngineRequest, options: PlanOptions, media: Sequence[Media]
) -> list[ItemName]:
    """Return the names of items whose hashes the request carries."""
    keys = [
        request.engine.name_item(
            one.key,
            request.release,
            options=request.options(place.source.modality),
            orientation=one.exif_orientation,
        )
        for place, one in zip(request.places, media, strict=True)
    ]
    block_keys = _block_keys(family, request, options, keys)
    return [
        ItemName(key, block_key, _fields(request, key))
        for key, block_key in zip(keys, block_keys, strict=True)
    ]


def _fields(request: EngineRequest, key: Digest) -> RequestFields:
    return request.engine.request_fields(key, request.release)


def _block_keys(
    family: Family, request: EngineRequest, options: PlanOptions, keys: list[Digest]
) -> list[Digest]:
    """Return the keys that blocks use. vLLM hashes a uuid with the options and the model's name."""
    processing, media_io = _option_members(request)
    if not keys or request.engine.name != "vllm" or not (processing or media_io):
        return keys
    if options["model_id"] is None:
        raise InputValueError(
            "the request has processor options, which vLLM hashes together with its name of the"
            " model: pass that name as model_id"
        )
    found = list(keys)
    sources = [place.source for place in request.places]
    for modality in {source.modality for source in sources}:
        places = [n for n, source in enumerate(sources) if source.modality == modality]
        identifiers = vllm.identifiers(
            modality,
            [b""] * len(places),
            model_id=options["model_id"],
            uuids=[vllm.uuid(keys[place]) for place in places],
            processor_kwargs=processing,
            media_io_kwargs=media_io,
            per_video_options=family.per_video_options,
            version=request.release,
            algorithm=options["mm_hasher_algorithm"],
        )
        for place, identifier in zip(places, identifiers, strict=True):
            found[place] = Digest("blake3", bytes.fromhex(identifier))
    return found
