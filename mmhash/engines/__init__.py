"""Every engine's own spelling of a key: the only rooms that know an engine."""

from mmhash.engines import dynamo, lmcache, lmdeploy, sglang, trtllm, vllm
from mmhash.engines.registry import RequestFields, known, request_fields

__all__ = [
    "RequestFields",
    "dynamo",
    "known",
    "lmcache",
    "lmdeploy",
    "request_fields",
    "sglang",
    "trtllm",
    "vllm",
]
