"""file: URLs: files below the root and nothing else."""

import os
from pathlib import Path

import pytest

from mmhash_service.fetch.local import is_file_url, open_file
from mmhash_service.problems.problem import Problem
from tests.support.descriptors import descriptors_below

LIMIT = 100


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "below").mkdir(parents=True)
    (root / "a").write_bytes(b"abc")
    (root / "below" / "b c%41").write_bytes(b"bcd")
    (root / "long").write_bytes(bytes(LIMIT + 1))
    (root / "full").write_bytes(bytes(LIMIT))
    os.mkfifo(root / "pipe")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root2").mkdir()
    (tmp_path / "root2" / "secret").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "inner").symlink_to("a")
    (root / "up").symlink_to("..")
    (root / "to-below").symlink_to("below")
    return root


def read(url: str, root: Path) -> bytes:
    file, nbytes = open_file(url, root, LIMIT)
    with file:
        content = file.read()
    assert len(content) == nbytes
    return content


@pytest.mark.parametrize(
    ("before", "path", "content"),
    [
        ("file://", "/a", b"abc"),
        ("FILE://", "/a", b"abc"),
        ("file://localhost", "/a", b"abc"),
        ("file://LOCALHOST", "/a", b"abc"),
        ("file:", "/a", b"abc"),
        ("file://", "/%61", b"abc"),
        ("file://", "//a", b"abc"),
        ("file://", "/./a", b"abc"),
        ("file://", "/below/b%20c%2541", b"bcd"),
        ("file://", "/below%2Fb%20c%2541", b"bcd"),
        ("file://", "/full", bytes(LIMIT)),
    ],
)
def test_a_file_below_the_root_is_read(root: Path, before: str, path: str, content: bytes) -> None:
    assert is_file_url(before)
    assert read(f"{before}{root}{path}", root) == content


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/none", "url-failed"),
        ("/below", "url-failed"),
        ("", "url-failed"),
        ("/a/b", "url-failed"),
        ("/pipe", "url-failed"),
        ("/link", "url-failed"),
        ("/inner", "url-failed"),
        ("/up/secret", "url-failed"),
        ("/to-below/b%20c%2541", "url-failed"),
        ("/below/b%20c%41", "url-failed"),
        ("/a%00", "url-failed"),
        ("/%00/a", "url-failed"),
        ("/" + "a" * 300, "url-failed"),
        ("/long", "body-too-large"),
        ("/../secret", "url-off"),
        ("/%2e%2e/secret", "url-off"),
        ("/.%2E%2Fsecret", "url-off"),
        ("/below/../a", "url-off"),
        ("2/secret", "url-off"),
        ("/%252e%252e/secret", "url-failed"),
        ("/..%5csecret", "url-failed"),
        ("/..\\secret", "invalid-url"),
        ("/a?b", "invalid-url"),
        ("/a#b", "invalid-url"),
        ("/a b", "invalid-url"),
        ("/a\n", "invalid-url"),
        ("/\ud800", "invalid-url"),
        ("/" + "a/" * 5000, "invalid-url"),
    ],
)
def test_all_else_is_refused(root: Path, path: str, problem: str) -> None:
    with pytest.raises(Problem) as refused:
        read(f"file://{root}{path}", root)
    assert refused.value.name == problem


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("file:///etc/passwd", "url-off"),
        ("file:///", "url-off"),
        ("file:///proc/self/environ", "url-off"),
        ("file://host/etc/passwd", "invalid-url"),
        ("file://127.0.0.1/etc/passwd", "invalid-url"),
        ("file://localhost:80/etc/passwd", "invalid-url"),
        ("file://user@localhost/etc/passwd", "invalid-url"),
        ("file:etc/passwd", "invalid-url"),
        ("file://localhost", "invalid-url"),
        ("file:", "invalid-url"),
    ],
)
def test_elsewhere_is_refused(root: Path, url: str, problem: str) -> None:
    with pytest.raises(Problem) as refused:
        read(url, root)
    assert refused.value.name == problem


def test_without_a_root_there_are_no_files(root: Path) -> None:
    with pytest.raises(Problem) as refused:
        open_file(f"file://{root}/a", None, LIMIT)
    assert refused.value.name == "url-off"


def test_the_root_itself_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(root)
    assert read(f"file://{tmp_path}/other/a", tmp_path / "other") == b"abc"


def test_the_root_may_be_relative(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    assert read(f"file://{root}/a", Path("root")) == b"abc"


def test_no_descriptor_is_left(root: Path) -> None:
    for path in ("/a", "/none", "/below", "/below/none", "/link", "/pipe", "/long", "/a/b"):
        try:
            read(f"file://{root}{path}", root)
        except Problem:
            continue
    assert descriptors_below(str(root)) == 0
