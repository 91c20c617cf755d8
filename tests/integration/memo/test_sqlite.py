"""The memo in an SQLite file that several processes share, and on a full disk."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.memo import hash_pixels, share_an_image
from tests.support.patience import PATIENT_COMMAND
from tests.support.service import count

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
def test_a_full_disk_costs_misses(serve: Serve, images: list[bytes], tmp_path: Path) -> None:
    """No file of that process may be longer than 60 KB: SQLite is told that the disk is full."""
    limited = ("prlimit", "--fsize=60000", *PATIENT_COMMAND)
    client = serve(f"memo_url=sqlite:{tmp_path / 'memo'}", "memo_bytes=100000", program=limited)
    first = [hash_pixels(client, image) for image in images]
    assert [item["memo"] for item in first] == ["miss"] * len(images)
    assert count(client, "mmhash_memo_failures_total") > 0
    assert [hash_pixels(client, images[-1])["memo"] for _ in range(2)] == ["hit", "hit"]
