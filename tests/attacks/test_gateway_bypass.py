"""A caller's hash that the gateway does not see, because only the engine unpacks the body.

The gateway refuses a body that an engine would unpack, whichever header says so.
"""

import httpx
import pytest

from mmhash.engines.caller_fields import COMPRESSION_HEADERS
from tests.support.gateway import EngineProcess
from tests.support.service import Service

FORGED = b'{"text": "a", "image_data": ["AAAA"], "mm_hashes": ["f0"]}'
# A frame of zstd whose only block is stored as it is.
COMPRESSED = (
    b"\x28\xb5\x2f\xfd\x20%c" % len(FORGED) + (len(FORGED) << 3 | 1).to_bytes(3, "little") + FORGED
)


@pytest.mark.parametrize("name", COMPRESSION_HEADERS)
@pytest.mark.parametrize("values", [["zstd"], ["identity", "zstd"], ["identity, zstd"]])
@pytest.mark.parametrize("path", ["/generate", "/v1/embeddings"])
def test_no_engine_unpacks_what_the_gateway_has_not_read(
    gateway: Service, worker: EngineProcess, name: str, values: list[str], path: str
) -> None:
    before = worker.state()["seen"]
    headers = [(name, value) for value in values]
    with gateway.new_client() as client:
        answer = client.post(path, content=COMPRESSED, headers=httpx.Headers(headers))
    assert answer.status_code in {400, 415}, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert worker.state()["seen"] == before
