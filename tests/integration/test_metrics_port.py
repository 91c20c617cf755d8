"""The metrics port, and what it shows for one process and for several."""

import re
from collections import Counter

import httpx
import pytest
from blake3 import blake3

import mmhash
from tests.support.ports import free_port
from tests.support.service import serving

KEY = "a key"


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_the_port_has_the_metrics_without_a_key_and_nothing_else(count: int) -> None:
    port = free_port()
    digests = [blake3(KEY.encode()).hexdigest()]
    settings = {"metrics_port": str(port), "api_key_digests": digests}
    with (
        serving("--processes", str(count), settings=settings) as service,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as scraper,
        service.new_client() as client,
    ):
        text = scraper.get("/metrics").text
        for path in ("/", "/hash", "/live", "/ready", "/info", "/docs", "/metrics/"):
            assert scraper.get(path).status_code == 404
        assert scraper.post("/metrics").status_code == 405
        # The Host header does not choose the port.
        forged = {"host": f"127.0.0.1:{port}"}
        assert client.get("/metrics", headers=forged).status_code == 401
    names = Counter(re.findall(r"^([a-z_]+)(?:\{.*\})? ", text, re.MULTILINE))
    assert not any(name.endswith("_created") for name in names)
    assert names["mmhash_build_info"] == 1
    assert f'version="{mmhash.__version__}"' in text
