"""The memo in an SQLite file that several processes share, and on a full disk."""

import resource
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.memo import hash_pixels, share_an_image
from tests.support.patience import PATIENT_COMMAND
from tests.support.service import count, serving

Serve = Callable[..., httpx.Client]


@pytest.mark.slow
def test_two_replicas_and_their_workers_share_a_file(
    serve: Serve, images: list[bytes], tmp_path: Path
) -> None:
    url = f"memo_url=sqlite:{tmp_path / 'memo'}"
    one, two = serve(url), serve(url, "processes=2")
    assert one.get("/info").json()["memo"] == "sqlite"
    share_an_image(one, two, images)


@pytest.mark.slow
def test_a_full_disk_costs_misses(images: list[bytes], tmp_path: Path) -> None:
    """No file of that process may grow beyond 60 KB: SQLite is told that the disk is full."""
    settings = ("--set", f"memo_url=sqlite:{tmp_path / 'memo'}", "--set", "memo_bytes=100000")
    with serving(*settings, program=PATIENT_COMMAND) as service, service.new_client() as client:
        hash_pixels(client, images[0])  # its decoders have started, whose buffers are larger
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (60_000, 60_000))
        first = [hash_pixels(client, image) for image in images[1:]]
        assert [item["memo"] for item in first] == ["miss"] * len(first)
        assert count(client, "mmhash_memo_failures_total") > 0
        assert [hash_pixels(client, images[-1])["memo"] for _ in range(2)] == ["hit", "hit"]
