"""SGLang's server in Rust: the hash of a file, and its grammar of `mm_hashes`."""

import pytest

from mmhash.engines import sglang
from mmhash.errors import InputTypeError, InputValueError


@pytest.mark.parametrize(
    ("data", "expected"), [(b"abc", 0x6437B3AC38465133), (b"", 0xAF1349B9F5F9A1A6)]
)
def test_a_file_is_hashed_by_its_bytes(data: bytes, expected: int) -> None:
    assert sglang.file_hash(data) == expected
    assert sglang.hash_feature(data) != expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1f", 0x1F),
        ("0x1f", 0x1F),
        ("ABCdef", 0xABCDEF),
        ("f" * 64, 2**64 - 1),
        ("12" + "0" * 15 + "1", 1),
    ],
)
def test_entries_that_both_servers_take(text: str, expected: int) -> None:
    assert sglang.parse_mm_hash(text, server="rust") == expected
    assert sglang.parse_mm_hash(text) == expected


@pytest.mark.parametrize(
    "text", ["0X1f", "1_0", " 12 ", "12\n", "+12", "-1", "0x", "0x0xAB", "", "\u0661", "g"]
)
def test_entries_that_the_server_in_rust_ignores(text: str) -> None:
    with pytest.raises(InputValueError, match="would ignore"):
        sglang.parse_mm_hash(text, server="rust")


def test_other_releases_and_servers_are_refused() -> None:
    with pytest.raises(InputValueError, match="Rust server"):
        sglang.parse_mm_hash("1f", version="0.5.22", server="rust")
    with pytest.raises(InputValueError, match="hash of files"):
        sglang.file_hash(b"", version="0.5.22")
    with pytest.raises(InputValueError, match="'python' or 'rust'"):
        sglang.parse_mm_hash("1f", server="go")  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="bytes"):
        sglang.file_hash([1])
