"""Hashing in compiled graphs: passes, their manager, and a backend for torch.compile."""

from mmhash.compile.backend import Backend, backend
from mmhash.compile.fuse_normalize_digest import FuseNormalizeDigest
from mmhash.compile.manager import PassManager, PassReport, Row
from mmhash.compile.merge_digests import MergeDigests
from mmhash.compile.passes import Pass

__all__ = [
    "Backend",
    "FuseNormalizeDigest",
    "MergeDigests",
    "Pass",
    "PassManager",
    "PassReport",
    "Row",
    "backend",
]
