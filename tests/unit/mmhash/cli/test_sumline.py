"""Lines of sum files: what is written is read back, and nothing else is read."""

import os

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

import mmhash
from mmhash import Digest, InputError
from mmhash.cli.sumline import format_line, parse_line
from mmhash.io.names import printable

DIGEST = mmhash.digest(b"foo")
HEX = DIGEST.hex()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a b", f"{HEX}  a b"),
        (" *a", f"{HEX}   *a"),
        ("a\nb", rf"\{HEX}  a\nb"),
        ("a\rb", rf"\{HEX}  a\rb"),
        ("a\\b", rf"\{HEX}  a\\b"),
        ("a\\nb", rf"\{HEX}  a\\nb"),
        ("日本", f"{HEX}  日本"),
    ],
)
def test_lines_are_those_of_b3sum(name: str, line: str) -> None:
    assert format_line(DIGEST.hex(), name) == line
    for end in ("", "\n", "\r\n"):
        assert parse_line(line + end) == (DIGEST, name)


@given(
    digest=st.sampled_from([DIGEST, mmhash.digest(b"foo", algorithm="xxh3")]),
    name=st.text(
        st.characters(exclude_characters="\0\ufffd", exclude_categories=["Cs"]), min_size=1
    ),
)
def test_what_is_written_is_read_back(digest: Digest, name: str) -> None:
    line = format_line(digest.hex(), name)
    assert "\n" not in line
    assert parse_line(line + "\n") == (digest, name)


def test_name_that_is_not_utf8_is_shown_but_not_read() -> None:
    name = os.fsdecode(b"a\xff\n")
    assert printable(name) == "\\a\ufffd\\n"
    with pytest.raises(InputError, match="U\\+FFFD"):
        parse_line(format_line(DIGEST.hex(), name))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n",
        "a",
        HEX,
        f"{HEX}  ",
        f"{HEX} a",
        f"{HEX} *a",
        f"{HEX}\ta",
        f" {HEX}  a",
        f"{HEX[:-1]}  a",
        f"{HEX}0  a",
        f"{HEX[:40]}  a",
        f"{HEX.upper()}  a",
        f"{HEX[:-1]}g  a",
        f"{HEX[:-1]}\N{ARABIC-INDIC DIGIT ZERO}  a",
        f"\\\\{HEX}  a",
        f"BLAKE3 (a) = {HEX}",
        f"{HEX}  a\0b",
        f"{HEX}  a\ufffd",
        rf"\{HEX}  a\tb",
        f"\\{HEX}  a\\",
        rf"\{HEX}  a\\\x",
    ],
)
def test_malformed_lines_are_refused(line: str) -> None:
    with pytest.raises(InputError):
        parse_line(line)


def test_unescaped_backslash_is_itself() -> None:
    """No b3sum writes such a line, but a person may."""
    assert parse_line(rf"{HEX}  a\nb") == (DIGEST, r"a\nb")


def test_algorithm_is_told_by_the_length() -> None:
    assert parse_line(f"{blake3(b'').hexdigest()}  a")[0].algorithm == "blake3"
    assert parse_line(f"{'0' * 32}  a")[0].algorithm == "xxh3"
