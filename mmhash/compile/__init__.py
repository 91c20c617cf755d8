"""Hashing in compiled graphs: passes, their manager, and a backend for torch.compile."""

from mmhash.compile.backend import Backend, backend
from mmhash.compile.drop_dead_digest import DropDeadDigest
from mmhash.compile.fuse_normalize_digest import FuseNormalizeDigest, FuseNormalizeDigestConfig
from mmhash.compile.manager import PassManager
from mmhash.compile.merge_digests import MergeDigests, MergeDigestsConfig
from mmhash.compile.passes import Pass
from mmhash.compile.report import Report, Row

__all__ = [
    "Backend",
    "DropDeadDigest",
    "FuseNormalizeDigest",
    "FuseNormalizeDigestConfig",
    "MergeDigests",
    "MergeDigestsConfig",
    "Pass",
    "PassManager",
    "Report",
    "Row",
    "backend",
]
