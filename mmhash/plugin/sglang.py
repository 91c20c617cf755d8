"""SGLang: names media by the keys of their files, and hashes features in the tokenizer.

Every request, also in an engine embedded in Python, goes through
`TokenizerManager._tokenize_one_request`. The manager's processor returns the items whose hashes and
pad values name pages.
"""

import asyncio
import dataclasses
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any

import mmhash
from mmhash.digest import Digest
from mmhash.engines.options import SGLANG_OPTIONS, options_text, with_options
from mmhash.engines.sglang import gpu_hashes
from mmhash.plugin.attempt import Attempt, logger
from mmhash.plugin.tags import Tags, TenantTags, tenant_secret

_MANAGER = "sglang.srt.managers.tokenizer_manager.TokenizerManager"

_RESOLVE = "sglang.srt.server_args.ServerArgs.resolve_once"

# Members of a media object that identify it, or hold its content.
_NOT_OPTIONS = frozenset({"url", "content_hash", "type", "format", "image", "video", "audio"})

# Members with which a media object names its own content.
_NAMES = ("hash", "pad_value", "pad_values", "identity", "content_hash")

# Two jobs use two cores; more would take cores from the tokenizer.
_THREADS = 2

# Files are fetched in these threads. A slow host must not delay the media of other requests.
_FILE_THREADS = 16

Names = dict[str, list[Digest | None]]
"""The key of each item of a request by modality; None for an item without a file."""

_file_names: ContextVar[Names] = ContextVar("file_names")
"""The names of the media in the current request."""


def register(features: frozenset[str]) -> None:
    """Register the hooks of these features; SGLang applies them."""
    if os.environ.get("SGLANG_RUST_SERVER", "").lower() in {"1", "true", "yes", "on"}:
        if "guard" in features:
            raise SystemExit(
                "MMHASH_PLUGIN=guard has no effect under SGLANG_RUST_SERVER: that server reads "
                "callers' hashes itself. Unset one of them."
            )
        logger.warning("mmhash is off: no hook runs under SGLANG_RUST_SERVER")
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

    plugin = Plugin(features)
    HookRegistry.register(f"{_MANAGER}._tokenize_one_request", plugin.tokenize, HookType.AROUND)
    HookRegistry.register(f"{_MANAGER}.__init__", plugin.announce, HookType.AFTER)
    HookRegistry.register(_RESOLVE, plugin.check_server, HookType.BEFORE)


class Plugin:
    """The hooks, and the features that are on."""

    def __init__(self, features: frozenset[str]) -> None:
        self._features = features
        self._attempt = Attempt()
        self._tags = Tags("sglang")
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="mmhash")
        self._file_threads = ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="mmhash-files")

    def check_server(self, server_args: Any) -> None:
        """Refuse the guard in a server that no hook reaches.

        Without the guard, only log that the plugin is off.
        """
        option = _unhooked(server_args)
        if option is None or getattr(server_args, "_resolution_finished", False):
            return
        if "guard" in self._features:
            raise SystemExit(
                f"MMHASH_PLUGIN=guard has no effect with {option}: such a server reads callers' "
                "hashes where SGLang runs no hook. Omit one of them."
            )
        logger.warning("mmhash is off: with %s SGLang runs no hook for requests", option)

    def announce(self, *_: Any) -> None:
        """Make the HTTP server answer `GET /mmhash`, which tells gateways who names pages."""
        server = sys.modules.get("sglang.srt.entrypoints.http_server")
        if server is None:  # an engine embedded in Python
            return
        features = {*self._features}
        if self._tags.has_tenants:
            features.add("tenants")
            server.app.add_middleware(TenantTags, tags=self._tags)
        facts = {"version": mmhash.__version__, "features": sorted(features)}
        server.app.get("/mmhash")(lambda: facts)

    async def tokenize(
        self, original: Callable[[Any, Any], Awaitable[Any]], manager: Any, request: Any
    ) -> Any:
        """Tokenize a request after naming its media."""
        names = self._take_hashes(request) if "guard" in self._features else {}
        if request.contains_mm_input():
            has_names = names or getattr(request, "mm_hashes", None)
            if "keys" in self._features and not has_names:
                secret = tenant_secret.get()
                names = await self._run(self._file_threads, name_media, request, secret) or {}
            _file_names.set(names)
            self._attempt.run(self._wrap, manager.mm_processor)
        return await original(manager, request)

    async def _run(
        self, threads: ThreadPoolExecutor, step: Callable[..., Any], *arguments: Any
    ) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, self._attempt.run, step, *arguments)

    def _take_hashes(self, request: Any) -> Names:
        """Remove the caller's hashes from a request; return the keys of valid tags.

        With `mm_hashes`, SGLang itself would fail for models that pad prompts in the tokenizer.
        """
        given = getattr(request, "mm_hashes", None)
        for member in ("mm_hashes", "mm_content_hashes"):
            if getattr(request, member, None):
                setattr(request, member, None)
        for member in ("image_data", "video_data", "audio_data"):
            _drop_names(getattr(request, member, None))
        keys = self._tags.keys_of(given) if isinstance(given, list) else []
        return {"image": [*keys]} if keys else {}

    def _wrap(self, processor: Any) -> None:
        """Name a processor's items as soon as they exist.

        Every model's processor has this method.
        """
        original = processor.process_mm_data_async
        if getattr(original, "is_mmhash", False):
            return

        async def process(*arguments: Any, **named: Any) -> Any:
            result = await original(*arguments, **named)
            names = _file_names.get({})
            items = [one for one in getattr(result, "mm_items", None) or () if _is_item(one)]
            if names and getattr(result, "padded_input_ids", None) is not None:
                # The ids are padded by the items' own hashes. The scheduler pads again.
                result.padded_input_ids = None
            self._attempt.run(set_names, items, names)
            unnamed = _unnamed(items)
            if unnamed and "features" in self._features:
                await self._run(self._threads, self._name_features, unnamed, tenant_secret.get())
            return result

        process.is_mmhash = True  # type: ignore[attr-defined]
        processor.process_mm_data_async = process
        if "features" in self._features:
            self._wrap_transport(processor)

    def _wrap_transport(self, processor: Any) -> None:
        """Hash features on a GPU before SGLang's CUDA IPC pool takes them; leave others to threads.

        In between, SGLang itself would hash features that a caller has computed, on the event loop.
        """
        split = processor._postprocess_mm_items_before_transport
        prepare = processor._prepare_mm_items_for_transport

        def split_items(items: list[Any], **named: Any) -> list[Any]:
            items = split(items, **named)
            self._attempt.run(self._name_early, items)
            for item in _unnamed(items):
                item.pad_value = 0  # SGLang hashes no item that has a pad value
            return items

        def prepare_items(items: list[Any]) -> Any:
            for item in _unnamed(items):
                item.pad_value = None
            self._attempt.run(self._name_early, items)  # some models split nothing
            return prepare(items)

        processor._postprocess_mm_items_before_transport = split_items
        processor._prepare_mm_items_for_transport = prepare_items
        if (executor := getattr(processor, "mm_processor_executor", None)) is not None:
            run = executor.run
            # The threads of this executor need the names and the tenant of the request.
            executor.run = lambda *step, **named: run(copy_context().run, *step, **named)

    def _name_early(self, items: list[Any]) -> None:
        """Name items by their files, and the others by their features if these are on a GPU."""
        set_names(filter(_is_item, items), _file_names.get({}))
        on_gpu = [item for item in _unnamed(items) if _is_on_gpu(item)]
        self._name_features(on_gpu, tenant_secret.get())

    def _name_features(self, items: list[Any], tenant: bytes | None) -> None:
        if "keys" in self._features:
            name_features(items, tenant)
        else:
            hash_on_gpu(items)
        for item in items:
            item.set_pad_value()  # by the engine's own hash, if the item has none yet


def name_media(request: Any, tenant: bytes | None = None) -> Names:
    """Return the keys of a request's media, and put the fetched content into the request."""
    given = {name: getattr(request, name, None) for name in SGLANG_OPTIONS}
    common = {name: value for name, value in given.items() if value}  # by default these are false
    if _are_images(common.get("modalities")):
        del common["modalities"]
    names: Names = {}
    for modality in ("image", "video", "audio"):
        member = f"{modality}_data"
        media = getattr(request, member, None)
        entries = list(media) if isinstance(media, (list, tuple)) else [media]
        if not media or any(isinstance(entry, (list, tuple)) for entry in entries):
            continue
        for index, entry in enumerate(entries):
            content = _content_of(entry, modality)
            key = None
            if content is not None:
                entries[index] = _with_content(entry, content)
                options = options_text(common | _options_of(entry))
                key = with_options(mmhash.key(content, tenant=tenant), options)
            names.setdefault(modality, []).append(key)
        setattr(request, member, entries)
    return names


def set_names(items: Iterable[Any], names: Names) -> None:
    """Give each item the hash of its file.

    A model that makes several items of a file, or one item of several files, keeps its own hashes.
    """
    by_modality: dict[str, list[Any]] = {}
    for item in items:
        by_modality.setdefault(item.modality.name.partition("_")[0].lower(), []).append(item)
    for modality, keys in names.items():
        found = by_modality.get(modality, [])
        if len(found) == len(keys):
            for item, key in zip(found, keys, strict=True):
                if key is not None:
                    item.set_hash(key.u64)


def name_features(items: list[Any], tenant: bytes | None = None) -> None:
    """Name items by the keys of their features, with one launch per device.

    Lists of tensors have no key.
    """
    items = [item for item in items if hasattr(_feature(item), "shape")]
    keys = mmhash.keys([_feature(item) for item in items], tenant=tenant)
    for item, key in zip(items, keys, strict=True):
        item.set_hash(key.u64)


def hash_on_gpu(items: list[Any]) -> None:
    """Give items on a GPU the engine's own hash, with one launch instead of several for each."""
    items = [item for item in items if _is_on_gpu(item)]
    hashes = gpu_hashes([_feature(item) for item in items])
    for item, value in zip(items, hashes, strict=True):
        item.hash = value


def _unhooked(server_args: Any) -> str | None:
    """Return the option of a server that tokenizes without SGLang's tokenizer manager, or None.

    Several tokenizers are processes in which SGLang loads no plugins.
    """
    if getattr(server_args, "tokenizer_worker_num", 1) > 1:
        return "--tokenizer-worker-num"
    members = ("smg_grpc_mode", "grpc_mode", "encoder_only")
    member = next((name for name in members if getattr(server_args, name, False)), None)
    return f"--{member.replace('_', '-')}" if member else None


def _are_images(modalities: Any) -> bool:
    """Return True for the engine's default: "image" once, or for each image."""
    return bool(modalities) and set(
        [modalities] if isinstance(modalities, str) else modalities
    ) == {"image"}


def _content_of(entry: Any, modality: str) -> bytes | None:
    """Return the encoded bytes of a media entry as the engine would read them, or None."""
    source = getattr(entry, "url", entry)
    if isinstance(source, dict):
        source = None if "format" in source else source.get("url") or source.get(modality)
    if isinstance(source, bytes):
        return source
    if not isinstance(source, str):
        return None
    from sglang.srt.utils.common import get_image_bytes, get_video_bytes  # noqa: PLC0415

    content = get_video_bytes(source) if modality == "video" else get_image_bytes(source)
    return content if isinstance(content, bytes) else None


def _with_content(entry: Any, content: bytes) -> Any:
    """Return media with its content instead of the URL, so the engine does not fetch it again."""
    if _is_object(entry):
        return dataclasses.replace(entry, url=content)
    if isinstance(entry, dict):
        return {**entry, "url": content} if "url" in entry else entry
    return content


def _options_of(entry: Any) -> dict[str, Any]:
    """Return the processing options of an item that differ from the engine's defaults."""
    options = entry if isinstance(entry, dict) else {}
    if _is_object(entry):
        given = ((each, getattr(entry, each.name)) for each in dataclasses.fields(entry))
        options = {each.name: value for each, value in given if value != each.default}
    return {name: value for name, value in options.items() if name not in _NOT_OPTIONS}


def _is_object(entry: Any) -> bool:
    """Return True for SGLang's own media objects."""
    return dataclasses.is_dataclass(entry) and not isinstance(entry, type)


def _drop_names(media: Any) -> None:
    if isinstance(media, (list, tuple)):
        for entry in media:
            _drop_names(entry)
    elif isinstance(media, dict):
        for name in _NAMES:
            media.pop(name, None)
    elif getattr(media, "content_hash", None) is not None:
        media.content_hash = None


def _feature(item: Any) -> Any:
    return item.feature if item.feature is not None else item.precomputed_embeddings


def _is_on_gpu(item: Any) -> bool:
    return bool(getattr(_feature(item), "is_cuda", False))


def _unnamed(items: Iterable[Any]) -> list[Any]:
    return [item for item in items if _is_item(item) and item.hash is None]


def _is_item(item: Any) -> bool:
    return hasattr(item, "set_hash") and hasattr(item, "modality")
