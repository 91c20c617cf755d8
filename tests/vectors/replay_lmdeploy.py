"""LMDeploy's vectors, answered by mmhash."""

from collections.abc import Callable

from mmhash.engines import lmdeploy
from tests.vectors.engine_cases import Case, build


def replay(case: Case) -> object:
    given = case.input
    assert given["op"] == "content_hash"
    data, meta, positions = (build(given[name]) for name in ("data", "meta", "mrope_pos_ids"))
    return {"hash": lmdeploy.content_hash(data, meta, positions, version=case.version)}


FILES: dict[str, Callable[[Case], object]] = {"lmdeploy_content_hash": replay}
