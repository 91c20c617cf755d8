import pickle

import pytest

import mmhash
from mmhash import Digest, InputTypeError, InputValueError
from mmhash.algorithms import ALGORITHM_SPECS
from mmhash.cuda.compiler import SOURCES
from mmhash.digest import ALGORITHMS, DIGEST_SIZE, check_algorithm

ONE = Digest("blake3", bytes(range(32)))


def test_spellings() -> None:
    assert ONE.hex() == bytes(range(32)).hex()
    assert str(ONE) == f"blake3:{ONE.hex()}"
    assert ONE.u64 == 0x0001020304050607


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_parse_reads_what_str_gives(algorithm: str) -> None:
    digest = Digest(check_algorithm(algorithm), bytes(DIGEST_SIZE[algorithm]))
    assert Digest.parse(str(digest)) == digest
    assert Digest.parse(str(digest).replace(digest.hex(), digest.hex().upper())) == digest


@pytest.mark.parametrize(
    "text",
    ["", "blake3", "blake3:", ":00", "blake3:" + "0" * 63, "blake3:" + "0" * 66, "xxh3:" + "0" * 64,
     "blake3:" + "g" * 64, "blake3: " + "0" * 63, "sha256:" + "0" * 64, "blake3:" + "0" * 64 + "\n",
     "BLAKE3:" + "0" * 64, "blake3:" + "\N{ARABIC-INDIC DIGIT ZERO}" * 64],
)  # fmt: skip
def test_parse_refuses(text: str) -> None:
    with pytest.raises(InputValueError):
        Digest.parse(text)


@pytest.mark.parametrize("text", ["", "0" * 63, "0" * 66, "g" * 64, " " + "0" * 63, " 0" * 32])
def test_fromhex_refuses(text: str) -> None:
    with pytest.raises(InputValueError, match="64 hex digits"):
        Digest.fromhex(text)
    with pytest.raises(InputTypeError, match="bytes"):
        Digest.fromhex(b"00")  # type: ignore[arg-type]


def test_digest_is_frozen_hashable_and_travels() -> None:
    with pytest.raises(AttributeError):
        ONE.bytes = b""  # type: ignore[misc]
    assert {ONE: 1}[Digest("blake3", bytes(range(32)))] == 1
    assert pickle.loads(pickle.dumps(ONE)) == ONE


@pytest.mark.parametrize("value", [b"", bytes(31), bytes(33), "0" * 32, bytearray(32), None])
def test_digest_refuses_a_wrong_value(value: bytes) -> None:
    with pytest.raises(InputValueError, match="32 bytes"):
        Digest("blake3", value)


def test_the_table_has_every_algorithm_and_no_other() -> None:
    assert tuple(ALGORITHM_SPECS) == ALGORITHMS
    for name, spec in ALGORITHM_SPECS.items():
        assert len(spec.new_state(1).digest()) == spec.digest_size
        for source in (f"{name}.cu", f"normalize_{name}.cu"):
            assert (SOURCES / source).is_file()


def test_hex_forms() -> None:
    digest = mmhash.digest(b"abc")
    assert f"{digest}" == str(digest) == f"blake3:{digest.hex()}"
    assert repr(digest) == f"Digest.parse('{digest}')"


def test_order_is_that_of_the_text() -> None:
    digests = [
        mmhash.digest(bytes([n]), algorithm=name) for n in range(9) for name in ("xxh3", "blake3")
    ]
    assert sorted(digests) == sorted(digests, key=str)
    with pytest.raises(TypeError):
        digests[0] < b"abc"  # noqa: B015
