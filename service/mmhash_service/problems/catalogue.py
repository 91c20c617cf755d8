"""The problems: every way in which a request can fail, each with one fixed public text.

Code that raises a problem may add a `reason` with values of the caller's own request. Other
exception messages may hold paths, addresses or a decoder's state, and are only logged.
"""

from mmhash_service.problems.problem import ProblemSpec

PROBLEMS = {
    "duplicate-header": ProblemSpec(
        400,
        "Duplicate header",
        "The request or a part of its body repeats a header that takes one value, such as "
        "Content-Type or X-Mmhash-Tenant: send it once.",
    ),
    "unauthorized": ProblemSpec(
        401,
        "Unauthorized",
        "The request needs a valid API key in the header Authorization: Bearer.",
    ),
    "unknown-tenant": ProblemSpec(
        403,
        "Unknown tenant",
        "The setting tenants has no tenant of the name in X-Mmhash-Tenant: leave the header out, "
        "or ask the operator for a name.",
    ),
    "not-found": ProblemSpec(404, "Not found", "There is no resource at this path."),
    "method-not-allowed": ProblemSpec(
        405,
        "Method not allowed",
        "This path does not support the method: the Allow header lists the supported methods.",
    ),
    "in-place-off": ProblemSpec(
        403,
        "In place is off",
        "Items in this host's memory are accepted only on the Unix socket of the setting uds, and "
        "those in CUDA memory only if the setting cuda_ipc is on too: send the bytes instead.",
    ),
    "url-off": ProblemSpec(
        403,
        "URL is off",
        "An http(s) URL is fetched only from a host in the setting url_hosts, such as "
        "MMHASH_URL_HOSTS='[\"example.org\"]': send the bytes as data or in a data: URL instead.",
    ),
    "url-refused": ProblemSpec(
        403,
        "URL refused",
        "The host of the URL has no address or one that is not public, or the URL redirects to "
        "another host, from https to http, or more than 3 times. The setting url_networks allows "
        "private addresses.",
    ),
    "sign-off": ProblemSpec(
        403, "Signing is off", "Tags are issued only if the setting tag_secrets has a secret."
    ),
    "named-peer": ProblemSpec(
        403,
        "Named peer",
        "A form must not have a member that names a peer, from which the engine would load, or an "
        "engine's internal state. From JSON the gateway removes such members.",
    ),
    "stalled-body": ProblemSpec(
        408,
        "Stalled body",
        "The server received fewer than 1024 bytes of the body within the setting stall_timeout_s.",
    ),
    "body-too-large": ProblemSpec(
        413,
        "Body too large",
        "The body, or the content of a URL, is longer than the setting max_body_bytes allows; "
        "or JSON is longer than a 16th of max_held_bytes, or has more than 150000 values.",
    ),
    "too-many-items": ProblemSpec(
        413,
        "Too many items",
        "The body has more than 1000 items, or its images decode to far more bytes than their "
        "files have: send fewer in one request.",
    ),
    "unsupported-media-type": ProblemSpec(
        415,
        "Unsupported media type",
        "All calls take application/json. POST /hash also takes application/octet-stream, image/*, "
        "video/*, audio/*, application/x-safetensors or application/x-npy, as the body or as parts "
        "of multipart/form-data.",
    ),
    "unsupported-encoding": ProblemSpec(
        415,
        "Unsupported encoding",
        "A body or part must have no Content-Encoding, and no Content-Transfer-Encoding other than "
        "binary, 8bit or 7bit.",
    ),
    "invalid-query": ProblemSpec(
        422,
        "Invalid query",
        "The query has an unknown or repeated parameter, or a value that is not allowed for "
        "this request: errors names the parameters, or reason says why.",
    ),
    "unknown-model": ProblemSpec(
        422,
        "Unknown model",
        "The setting models has no model of this name: /info lists the models.",
    ),
    "unplannable-prompt": ProblemSpec(
        422,
        "Prompt cannot be planned",
        "There is no plan of this request for this model and engine: the reason or, for the "
        "model's files and chat template, the log says why.",
    ),
    "unplannable-item": ProblemSpec(
        422,
        "Item cannot be planned",
        "The size of an item is unknown: its header is damaged, ambiguous or of another format, or "
        "it is a video.",
    ),
    "processor-unavailable": ProblemSpec(
        503,
        "The model's processor did not answer",
        "The process that counts the tokens of an item ended, took too long or failed; try again.",
    ),
    "unknown-engine": ProblemSpec(
        422,
        "Unknown engine",
        "An engine is a name and a release, as in sglang@0.5.23, or a name for its newest release: "
        "/info lists the known ones. The setting engine_fallback answers a newer release too.",
    ),
    "refused-by-engine": ProblemSpec(
        422,
        "Refused by the engine",
        "The engine or this release of it does not support the call, or does not accept these ids, "
        "spans, names or fields: the reason says which.",
    ),
    "no-field": ProblemSpec(
        422,
        "No field",
        "This release of the engine has no field for a hash in such a request, as in those for "
        "completions and Messages: send it to the engine itself, without /annotate.",
    ),
    "damaged-media": ProblemSpec(
        422,
        "Damaged media",
        "The image is truncated, no JPEG, PNG, WebP, GIF, BMP or TIFF file, or cannot be decoded; "
        "or the image, video or audio file is empty.",
    ),
    "costly-media": ProblemSpec(
        422,
        "Costly media",
        "Decoding the image takes more time or memory than its length and pixels justify.",
    ),
    "media-too-large": ProblemSpec(
        413,
        "Media too large",
        "An image must have at most max_pixels pixels in all frames together, and 10000 frames.",
    ),
    "damaged-multipart": ProblemSpec(
        422,
        "Damaged multipart",
        "The multipart/form-data has no valid boundary, a part without a name, or no end.",
    ),
    "damaged-safetensors": ProblemSpec(
        422,
        "Damaged safetensors",
        "The header must be at most 1 MiB of JSON, and place the tensors without gaps or "
        "overlaps. Each tensor needs the length of its dtype and shape, and the body the length "
        "that the header declares.",
    ),
    "invalid-json": ProblemSpec(
        422,
        "Invalid JSON",
        "The body must be JSON in UTF-8 that fits the schema in /openapi.json, at most 200 levels "
        "deep, without lone surrogates or integers of more than 4300 digits.",
    ),
    "invalid-base64": ProblemSpec(
        422, "Invalid base64", "The data of an item must be standard base64 with padding."
    ),
    "invalid-url": ProblemSpec(
        422,
        "Invalid URL",
        "The URL must be a data: URL without a fragment and with at most 100000 escapes, or an "
        "http(s) URL of at most 4096 bytes, in normal form, without credentials.",
    ),
    "invalid-handle": ProblemSpec(
        422,
        "Invalid handle",
        "The handle of an item is malformed, cannot be opened, or is of another kind.",
    ),
    "invalid-tensor": ProblemSpec(
        422,
        "Invalid tensor",
        "A tensor needs a dtype, a shape of at most 32 integers, and as many bytes as both "
        "say, little-endian and in C order. A bundle is a tensor with either grids or counts, "
        "whose items add up to its first dimension.",
    ),
    "internal-error": ProblemSpec(
        500,
        "Internal error",
        "The server failed to answer. The reason is only in its log.",
    ),
    "url-failed": ProblemSpec(
        502,
        "URL failed",
        "The URL's host or file did not return the whole content, unencoded and with the "
        "declared length.",
    ),
    "worker-failed": ProblemSpec(
        502,
        "Worker failed",
        "The workers that got the request closed the connection before they answered it.",
    ),
    "worker-timeout": ProblemSpec(
        504,
        "Worker timeout",
        "The worker sent no response within the setting worker_timeout_s.",
    ),
    "url-timeout": ProblemSpec(
        504,
        "URL timeout",
        "The content of the URL did not arrive within the setting work_timeout_s.",
    ),
    "busy": ProblemSpec(
        429,
        "Busy",
        "The server holds as many bytes of requests as the setting max_held_bytes allows.",
    ),
    "draining": ProblemSpec(
        503,
        "Draining",
        "The server is stopping: it accepts no new requests, and others have grace_s seconds.",
    ),
    "too-slow": ProblemSpec(
        503, "Too slow", "The work took longer than the setting work_timeout_s allows."
    ),
    "decoder-failed": ProblemSpec(
        503, "Decoder failed", "The process that decoded the image exited before it finished."
    ),
    "no-workers": ProblemSpec(
        503, "No workers", "No worker can be reached: the gateway probes them every few seconds."
    ),
    "not-ready": ProblemSpec(
        503,
        "Not ready",
        "A backend returned a wrong digest or none, or a decoder has not started.",
    ),
}
