"""SGLang's hashes, pad values and page keys, as each release computes them.

`version` is a release of the engine, by default the newest known.
"""

from mmhash.engines.sglang.bundles import BundleItem, split_bundle
from mmhash.engines.sglang.engine import ENGINE
from mmhash.engines.sglang.features import file_hash, hash_feature
from mmhash.engines.sglang.gpu_kernel import gpu_hash, gpu_hashes
from mmhash.engines.sglang.identity import (
    artifact_key,
    content_hash,
    namespaced_hash,
    parse_content_hash,
)
from mmhash.engines.sglang.pads import (
    mm_hash,
    pad_input_ids,
    pad_values,
    padding,
    parse_mm_hash,
)
from mmhash.engines.sglang.pages import (
    event_id,
    event_keys,
    event_seed,
    namespace_seed,
    namespaced_event_id,
    page_keys,
)
from mmhash.engines.sglang.releases import LATEST, RELEASES

__all__ = [
    "ENGINE",
    "LATEST",
    "RELEASES",
    "BundleItem",
    "artifact_key",
    "content_hash",
    "event_id",
    "event_keys",
    "event_seed",
    "file_hash",
    "gpu_hash",
    "gpu_hashes",
    "hash_feature",
    "mm_hash",
    "namespace_seed",
    "namespaced_event_id",
    "namespaced_hash",
    "pad_input_ids",
    "pad_values",
    "padding",
    "page_keys",
    "parse_content_hash",
    "parse_mm_hash",
    "split_bundle",
]
