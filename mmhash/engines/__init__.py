"""Every engine's own spelling of a key: the only rooms that know an engine."""

from mmhash.engines import dynamo, lmcache, lmdeploy, sglang, trtllm, vllm
from mmhash.engines.spelling import Spelling, known, spell

__all__ = [
    "Spelling",
    "dynamo",
    "known",
    "lmcache",
    "lmdeploy",
    "sglang",
    "spell",
    "trtllm",
    "vllm",
]
