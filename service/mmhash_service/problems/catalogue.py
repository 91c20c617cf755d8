"""Every problem that a response can name, each with one fixed public text.

A `reason` may add values of the caller's own request. Other exception messages may have paths,
addresses or a decoder's state, so they go to the log only.
"""

from mmhash_service.problems.problem import ProblemSpec

PROBLEMS = {
    "duplicate-header": ProblemSpec(
        400,
        "The request, or a part of its form, repeats a header that takes one value, such as "
        "Content-Type or X-Mmhash-Tenant: send it once.",
    ),
    "unauthorized": ProblemSpec(
        401,
        "The request needs a valid API key in the header Authorization: Bearer.",
    ),
    "unknown-tenant": ProblemSpec(
        403,
        "X-Mmhash-Tenant names a tenant that is not in the setting tenants: leave the header out, "
        "or ask the operator for a name.",
    ),
    "not-found": ProblemSpec(404, "There is no resource at this path."),
    "method-not-allowed": ProblemSpec(
        405,
        "This path does not support the method. The Allow header lists the methods that it "
        "supports.",
    ),
    "in-place-off": ProblemSpec(
        403,
        "Handles of shared memory are accepted only on the Unix socket of the setting uds, and "
        "handles of CUDA memory only if cuda_ipc is on as well: send the bytes instead.",
    ),
    "url-off": ProblemSpec(
        403,
        "URLs are fetched only from hosts in the setting url_hosts, such as "
        "MMHASH_URL_HOSTS='[\"example.org\"]': send the bytes as data or in a data: URL instead.",
    ),
    "url-refused": ProblemSpec(
        403,
        "The URL's host has no public address, or the URL redirects. The setting url_networks can "
        "allow other addresses. Instead of a URL that redirects, send its target.",
    ),
    "sign-off": ProblemSpec(
        403,
        "The service signs tags only if the setting tag_secrets has a secret.",
    ),
    "named-peer": ProblemSpec(
        403,
        "The form has a member that would let the engine load from a peer, or that sets the "
        "engine's internal state: leave it out, or send JSON, from which such members are removed.",
    ),
    "stalled-body": ProblemSpec(
        408,
        "Fewer than 1024 bytes of the body arrived within timeout_s seconds.",
    ),
    "body-too-large": ProblemSpec(
        413,
        "The body or the content of a URL is longer than the setting max_body_bytes, or JSON has "
        "more than 150000 values. The service takes JSON of at most a 16th of max_held_bytes, the "
        "gateway other bodies of at most a third, and the guard at most 1000 tags.",
    ),
    "too-many-items": ProblemSpec(
        413,
        "The body has more than 1000 items, or its images decode to far more bytes than their "
        "files have: send fewer items in one request.",
    ),
    "unsupported-media-type": ProblemSpec(
        415,
        "All calls take application/json. POST /hash also takes application/octet-stream, image/*, "
        "video/*, audio/*, application/x-safetensors and application/x-npy, as a body or as parts "
        "of multipart/form-data.",
    ),
    "unsupported-encoding": ProblemSpec(
        415,
        "A body or a part of a form must not be encoded: send it without Content-Encoding and "
        "X-Body-Compressed, with no Transfer-Encoding but chunked, forms in UTF-8, and their parts "
        "without a Content-Transfer-Encoding other than binary, 8bit or 7bit.",
    ),
    "invalid-query": ProblemSpec(
        422,
        "The query has an unknown or repeated parameter, or a value that this request does not "
        "allow. The member errors names the parameters, or reason says why.",
    ),
    "unknown-model": ProblemSpec(
        422,
        "No model in the setting models has this name. /info lists the models.",
    ),
    "unplannable-prompt": ProblemSpec(
        422,
        "This request cannot be planned for this model and engine. The reason says why. If the "
        "model's files or chat template are at fault, only the log does.",
    ),
    "unplannable-item": ProblemSpec(
        422,
        "The size of an item is unknown: the item is a video file, or its header is damaged, "
        "ambiguous or of an unknown format.",
    ),
    "processor-unavailable": ProblemSpec(
        503,
        "The process that counts the tokens of an item failed, exited or took too long: try again.",
    ),
    "unknown-engine": ProblemSpec(
        422,
        "Give an engine and a release, as in sglang@0.5.23, or an engine alone for its newest "
        "release. /info lists the known ones.",
    ),
    "refused-by-engine": ProblemSpec(
        422,
        "This engine, or this release of it, does not support the call, or would not accept these "
        "ids, spans, names or fields. The reason says which.",
    ),
    "no-field": ProblemSpec(
        422,
        "The engine has no field for a hash in this kind of request, such as completions and "
        "Messages: send the request to the engine without /annotate.",
    ),
    "damaged-media": ProblemSpec(
        422,
        "The file is empty, or it is an image that is truncated, cannot be decoded, or is not "
        "JPEG, PNG, WebP, GIF, BMP or TIFF.",
    ),
    "costly-media": ProblemSpec(
        422,
        "Decoding the image takes more time or memory than its size justifies.",
    ),
    "media-too-large": ProblemSpec(
        413,
        "The image has more than 10000 frames, or its frames together have more pixels than the "
        "setting max_pixels allows.",
    ),
    "damaged-multipart": ProblemSpec(
        422,
        "The multipart/form-data has no valid boundary, a part without a name, or no end.",
    ),
    "damaged-safetensors": ProblemSpec(
        422,
        "The header must be JSON of at most 1 MiB, and place the tensors without gaps or overlaps. "
        "Each tensor must have the length that its dtype and shape need, and the body the length "
        "that the header declares.",
    ),
    "invalid-json": ProblemSpec(
        422,
        "The body must be JSON in UTF-8 that fits the schema in /openapi.json, at most 200 levels "
        "deep, without lone surrogates or integers of more than 4300 digits.",
    ),
    "invalid-base64": ProblemSpec(422, "The data of an item must be standard base64 with padding."),
    "invalid-url": ProblemSpec(
        422,
        "Send a data: URL without a fragment and with at most 100000 escapes, or an http(s) URL of "
        "at most 4096 bytes, in normal form and without credentials.",
    ),
    "invalid-handle": ProblemSpec(
        422,
        "The handle of an item is malformed, cannot be opened, or belongs to another kind of item.",
    ),
    "invalid-tensor": ProblemSpec(
        422,
        "A tensor needs a dtype, a shape of at most 32 integers, and as many bytes as these need, "
        "little-endian and in C order. A bundle is a tensor with either grids or counts, which add "
        "up to its first dimension.",
    ),
    "internal-error": ProblemSpec(
        500,
        "The server failed. Its log says why.",
    ),
    "url-failed": ProblemSpec(
        502,
        "The host of the URL did not return the whole content, unencoded and with the declared "
        "length.",
    ),
    "worker-failed": ProblemSpec(
        502,
        "Every worker that got the request closed the connection before answering.",
    ),
    "worker-timeout": ProblemSpec(
        504,
        "The worker did not answer within worker_timeout_s seconds.",
    ),
    "url-timeout": ProblemSpec(
        504,
        "The content of the URL did not arrive within timeout_s seconds.",
    ),
    "busy": ProblemSpec(
        429,
        "The server holds as many bytes of requests as the setting max_held_bytes allows: try "
        "again.",
    ),
    "draining": ProblemSpec(
        503,
        "The server is stopping. It accepts no new requests, and finishes running ones within "
        "grace_s seconds.",
    ),
    "too-slow": ProblemSpec(503, "The work took longer than timeout_s seconds."),
    "decoder-failed": ProblemSpec(503, "The process that decoded the image exited: try again."),
    "no-workers": ProblemSpec(
        503, "No worker can be reached. The gateway probes them every few seconds."
    ),
    "not-ready": ProblemSpec(
        503,
        "A decoder has not started, or a device failed its self-test.",
    ),
}
