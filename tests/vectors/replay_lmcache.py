"""LMCache's vectors, answered by mmhash."""

from collections.abc import Callable

from mmhash.engines import lmcache
from tests.vectors.engine_cases import Case


def replay(case: Case) -> object:
    given = case.input
    if given["op"] == "token_values":
        values = lmcache.token_values(given["identifier"], given["length"], version=case.version)
        return {"values": values}
    assert given["op"] == "substitute"
    spans = [lmcache.Span(*span) for span in given["spans"]]
    return {"tokens": lmcache.substitute(given["tokens"], spans, version=case.version)}


FILES: dict[str, Callable[[Case], object]] = {"lmcache_token_values": replay}
