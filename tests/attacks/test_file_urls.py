"""A file: URL that leads out of its folder: by dots, by escapes, by a link, to a device.

The folder is walked a name at a time and no link is followed; what is no regular file is not read.
"""

import os
from typing import Any

import pytest

from tests.support.responses import items_of, refusal_of
from tests.support.victim import serving

URLS = [
    "file:///etc/passwd",
    "file://{root}/../secret",
    "file://{root}/%2e%2e/secret",
    "file://{root}/..%2fsecret",
    "file://{root}/below/../../secret",
    "file://{root}/%252e%252e/secret",
    "file://{root}/link",
    "file://{root}/linked/secret",
    "file://{root}/pipe",
    "file://{root}/below",
    "file://{root}",
    "file://{root}/nothing",
    "file://{root}/a%00b",
    "file://{root}/file?x",
    "file://{root}\\file",
    "file://evil.example{root}/file",
    "file:////evil.example/share",
    "file:..{root}/file",
    "file://{root}x/file",
    "FILE:///proc/self/environ",
    "file:///dev/zero",
    "file:///proc/self/root{root}/file",
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("files")
    (root.parent / "secret").write_bytes(b"secret")
    (root / "below").mkdir()
    (root / "file").write_bytes(b"content")
    (root / "link").symlink_to("/etc/passwd")
    (root / "linked").symlink_to(root.parent)
    os.mkfifo(root / "pipe")
    with serving(file_root=str(root)) as server:
        yield server, root


@pytest.mark.parametrize("url", URLS)
def test_it_leads_nowhere(served: Any, url: str) -> None:
    server, root = served
    answer = server.hash_json({"kind": "bytes", "url": url.format(root=root)})
    name = answer.json()["type"].removeprefix("urn:mmhash:problem:")
    assert name in {"url-off", "invalid-url", "url-failed"}
    assert answer.status_code in {403, 422, 502}
    server.assert_well()


def test_what_is_below_is_read(served: Any) -> None:
    server, root = served
    (item,) = items_of(server.hash_json({"kind": "bytes", "url": f"file://{root}/file"}))
    assert item["nbytes"] == 7


def test_without_a_folder_no_file_is_read(server: Any) -> None:
    assert refusal_of(server.hash_json({"kind": "bytes", "url": "file:///etc/passwd"})) == "url-off"
