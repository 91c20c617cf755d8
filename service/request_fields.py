"""Every request field of an engine by which a caller can reach the engine's caches.

Plain data, read from the sources of all releases in docs/engines.md: the guard, `/annotate` and the
table of docs/guard.md take their fields from here.
"""

from typing import Literal, NamedTuple

Kind = Literal["hash", "hashes", "encoder", "feature", "peer", "peers", "header", "pass"]


class RequestField(NamedTuple):
    """One field: where an engine reads it, its effect, and its treatment by the guard.

    Kinds: `hash` holds one hash and `hashes` many; `encoder` holds many, beside `mm_items`;
    `feature` identifies features that the caller computed, inside media objects; `peer` is a text,
    number or list that names a peer or internal state, and `peers` may be an object too; `header`
    is the same in an HTTP header; `pass` is left alone.
    """

    name: str
    engine: str
    releases: str
    where: str
    effect: str
    kind: Kind


FIELDS = (
    RequestField(
        "uuid",
        "vLLM",
        "0.18 to 0.33",
        "content parts: chat, batch chat, responses, messages, pooling, score, rerank, tokenize, "
        "render, `content_parts` of /inference/v1/generate",
        "the item's identifier, or a cached item without its media",
        "hash",
    ),
    RequestField(
        "multi_modal_uuids",
        "vLLM, TensorRT-LLM, Dynamo",
        "all",
        "prompts of the Python API; Dynamo's frontend to worker",
        "identifiers by modality",
        "hashes",
    ),
    RequestField(
        "mm_hashes",
        "SGLang, vLLM, Dynamo",
        "SGLang 0.5.13 to 0.5.23, vLLM 0.18 to 0.33, Dynamo 1.6",
        "/generate, /vertex_generate; `features` of /inference/v1/generate; `extra_args`",
        "each item's hash, from which its pad values or its block keys come",
        "hashes",
    ),
    RequestField(
        "mm_hashes_by_modality", "Dynamo", "1.6", "`extra_args`", "the same by modality", "hashes"
    ),
    RequestField(
        "mm_content_hashes",
        "SGLang",
        "0.5.18 to 0.5.23",
        "/generate, /vertex_generate",
        "the hash of the media's bytes, for the cache of processed media",
        "hashes",
    ),
    RequestField(
        "content_hash",
        "SGLang",
        "0.5.18 to 0.5.23",
        "`image_url` on the OpenAI routes, objects in `image_data`, `mm_items` of an encoder",
        "the same for one image",
        "hash",
    ),
    RequestField(
        "hashes",
        "SGLang",
        "0.5.10 to 0.5.23",
        "/encode of an encoder, beside `mm_items`",
        "the items' names in the cache of embeddings",
        "encoder",
    ),
    RequestField(
        "hash",
        "SGLang",
        "0.4.6.post5 to 0.5.23",
        "objects in `image_data`, `video_data`, `audio_data`, `mm_items`: `processor_output` and "
        "precomputed embeddings",
        "the item's hash",
        "feature",
    ),
    RequestField(
        "pad_value", "SGLang", "0.4.6.post5 to 0.5.23", "the same objects", "its pad", "feature"
    ),
    RequestField(
        "pad_values", "SGLang", "0.5.23", "the same objects", "its four pads", "feature"
    ),
    RequestField(
        "identity", "SGLang", "0.5.23", "the same objects", "its 256-bit identity", "feature"
    ),
    RequestField(
        "ec_transfer_params",
        "vLLM",
        "0.26 to 0.33",
        "all routes that generate, and `sampling_params.extra_args`",
        "member names are hashes, values name a peer to load encoder outputs from",
        "peers",
    ),
    RequestField(
        "kv_transfer_params",
        "vLLM",
        "0.18 to 0.33",
        "the same, and Cohere's route",
        "a peer to load KV blocks from, and token ids in the prompt's place",
        "peers",
    ),
    RequestField(
        "bootstrap_host",
        "SGLang",
        "0.4.5.post1 to 0.5.23",
        "/generate and the OpenAI routes",
        "a peer to load KV pages from",
        "peer",
    ),
    RequestField("bootstrap_port", "SGLang", "0.4.6 to 0.5.23", "the same", "its port", "peer"),
    RequestField(
        "bootstrap_room", "SGLang", "0.4.5.post1 to 0.5.23", "the same", "a transfer there", "peer"
    ),
    RequestField(
        "bootstrap_pair_key", "SGLang", "0.5.2 to 0.5.23", "/generate", "a pair of peers", "peer"
    ),
    RequestField(
        "decode_tp_size", "SGLang", "0.4.7.post1 to 0.5.23", "/generate", "their layout", "peer"
    ),
    RequestField(
        "disagg_prefill_dp_rank",
        "SGLang",
        "0.5.10 to 0.5.23",
        "/generate and the OpenAI routes",
        "which prefill worker has the KV pages",
        "peer",
    ),
    RequestField(
        "encoder_urls",
        "SGLang",
        "0.5.13 to 0.5.23",
        "/generate",
        "encoders to load embeddings from",
        "peer",
    ),
    RequestField(
        "num_items_assigned",
        "SGLang",
        "0.5.7 to 0.5.23",
        "/generate",
        "how many items each encoder has",
        "peers",
    ),
    RequestField(
        "need_wait_for_image",
        "SGLang",
        "0.5.7 to 0.5.9",
        "/generate",
        "that embeddings come from an encoder",
        "peer",
    ),
    RequestField(
        "need_wait_for_mm_inputs",
        "SGLang",
        "0.5.10 to 0.5.23",
        "/generate",
        "the same",
        "peer",
    ),
    RequestField(
        "mm_data_mooncake",
        "SGLang",
        "0.5.13 to 0.5.18",
        "/generate",
        "media for an encoder, by names in a store",
        "peers",
    ),
    RequestField(
        "prefill_host", "SGLang", "0.5.7 to 0.5.23", "an encoder's routes", "a receiver", "peer"
    ),
    RequestField(
        "embedding_port", "SGLang", "0.5.7 to 0.5.23", "an encoder's routes", "its ports", "peer"
    ),
    RequestField(
        "receive_url", "SGLang", "0.5.7 to 0.5.23", "an encoder's routes", "a receiver", "peer"
    ),
    RequestField(
        "buffer_address",
        "SGLang",
        "0.5.7 to 0.5.23",
        "/send of an encoder",
        "where in a receiver's memory an embedding goes",
        "peer",
    ),
    RequestField(
        "kv_hints",
        "SGLang",
        "0.5.21 to 0.5.23",
        "/generate",
        "actions on stored KV pages, from an orchestrator",
        "peers",
    ),
    RequestField(
        "lora_id",
        "SGLang",
        "0.4.9.post4 to 0.5.23",
        "/generate, /encode",
        "an adapter by its internal id, which is joined to `extra_key`",
        "peer",
    ),
    RequestField(
        "http_worker_ipc",
        "SGLang",
        "0.5.4 to 0.5.23",
        "/generate, /encode",
        "the process that gets the output",
        "peer",
    ),
    RequestField(
        "disaggregated_params",
        "TensorRT-LLM",
        "1.3.0rc20 to 1.4.0",
        "OpenAI routes",
        "a context server, and its state of the request",
        "peers",
    ),
    RequestField(
        "bootstrap_info", "Dynamo", "1.6", "frontend to worker", "a peer to load from", "peers"
    ),
    RequestField(
        "prefill_result", "Dynamo", "1.6", "frontend to worker", "a peer's KV blocks", "peers"
    ),
    RequestField(
        "mm_kwargs_shm", "Dynamo", "1.6", "`extra_args`", "features in shared memory", "peers"
    ),
    RequestField(
        "x-override-bootstrap-host",
        "SGLang",
        "0.5.15 to 0.5.23",
        "header of /generate",
        "`bootstrap_host`",
        "header",
    ),
    RequestField(
        "x-override-bootstrap-port",
        "SGLang",
        "0.5.15 to 0.5.23",
        "header of /generate",
        "`bootstrap_port`",
        "header",
    ),
    RequestField(
        "x-override-bootstrap-room",
        "SGLang",
        "0.5.15 to 0.5.23",
        "header of /generate",
        "`bootstrap_room`",
        "header",
    ),
    RequestField(
        "x-override-disagg-prefill-dp-rank",
        "SGLang",
        "0.5.15 to 0.5.23",
        "header of /generate",
        "`disagg_prefill_dp_rank`",
        "header",
    ),
    RequestField(
        "cache_salt",
        "SGLang, vLLM",
        "SGLang 0.5.3 to 0.5.23, vLLM 0.18 to 0.33",
        "all routes",
        "a namespace of pages or blocks: a caller only leaves the shared one, and needs another's "
        "salt to enter its namespace",
        "pass",
    ),
    RequestField(
        "extra_key", "SGLang", "0.5.3 to 0.5.23", "/generate, OpenAI routes", "the same", "pass"
    ),
    RequestField(
        "lora_path",
        "SGLang",
        "0.4.3 to 0.5.23",
        "/generate, OpenAI routes",
        "an adapter by its public name; in the namespace, as it changes the output",
        "pass",
    ),
    RequestField(
        "prompt_embeds, image_embeds, audio_embeds, video_embeds",
        "vLLM",
        "0.18 to 0.33",
        "completions, content parts",
        "embeddings in a prompt's or an item's place, known by their own bytes unless a `uuid` is "
        "beside them",
        "pass",
    ),
    RequestField(
        "kwargs_data, mm_metadata",
        "vLLM",
        "0.20 to 0.33",
        "`features` of /inference/v1/generate",
        "processed media: without `mm_hashes` the engine refuses them",
        "pass",
    ),
    RequestField(
        "input_embeds, embed_overrides",
        "SGLang",
        "0.4.3 to 0.5.23",
        "/generate, embeddings, score",
        "embeddings in the prompt's place: not cached by token ids",
        "pass",
    ),
    RequestField(
        "session_params, session_id, previous_response_id",
        "SGLang, vLLM",
        "all",
        "/generate, responses",
        "an earlier request to go on with: whose it is, the gateway has to check",
        "pass",
    ),
    RequestField(
        "rid, request_id, routed_dp_rank, data_parallel_rank, routing_key",
        "SGLang, vLLM",
        "all",
        "all routes",
        "the request's own name, or a replica of the same cache: names no content",
        "pass",
    ),
)  # fmt: skip

KINDS: dict[str, Kind] = {
    field.name: field.kind for field in FIELDS if field.kind not in {"header", "pass"}
}
"""The kind of each field that the guard looks at in a body."""

HEADERS = frozenset(field.name for field in FIELDS if field.kind == "header")

# Of a request as a whole; vLLM's `mm_hashes` are in requests that /annotate does not take.
CALLER_HASHES = {
    "sglang": ("mm_hashes", "mm_content_hashes"),
    "vllm": ("multi_modal_uuids", "ec_transfer_params"),
}
"""Members of a whole request by which a caller names hashes, by engine."""

MEDIA = ("image_data", "video_data", "audio_data", "mm_items")
"""Members that hold media objects, in lists of lists."""

FEATURE_IDENTITIES = tuple(field.name for field in FIELDS if field.kind == "feature")

FEATURE_FORMATS = frozenset({"processor_output", "precomputed_embedding"})
"""Formats of media objects that hold features, in lower case."""

COMPRESSION_HEADERS = ("content-encoding", "x-body-compressed")
"""Headers by which an engine decompresses a body; SGLang reads the second from 0.5.15 on."""
