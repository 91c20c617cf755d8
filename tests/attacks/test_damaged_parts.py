"""Parts of a bulk run that are flipped, cut, swapped or replaced, to get wrong keys into its result.

Each part has a checksum of its content, its place and its run: what differs is hashed again, and named.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mmhash
from mmhash.cli.app import app

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from mmhash.bulk.pool import Pool  # noqa: E402
from mmhash.bulk.run import about_of, hash_source  # noqa: E402
from mmhash.bulk.shard_store import open_shard_store  # noqa: E402
from mmhash.bulk.sources import read_source  # noqa: E402
from mmhash.bulk.work import Options  # noqa: E402

GROUPS, ROWS = 4, 3
OPTIONS = Options()
KEYS = [mmhash.key(b"%d" % number).hex() for number in range(GROUPS * ROWS)]


class Watch:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def found(self, shard: Any) -> None: ...

    def done(self, shard: Any) -> None: ...

    def warn(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1) as pool:
        yield pool


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "source.parquet"
    values = [b"%d" % number for number in range(GROUPS * ROWS)]
    pq.write_table(pa.table({"data": values}), path, row_group_size=ROWS)
    return str(path)


@pytest.fixture
def out(tmp_path: Path, source: str) -> Path:
    """A run that was killed when all of its parts were finished."""
    out = tmp_path / "keys.parquet"
    finish(source, out, OPTIONS)
    return out


def finish(source: str, out: Path, options: Options) -> None:
    found = read_source(source, "data")
    with open_shard_store(out, found.names, options, about_of(options)) as parts:
        for number, shard in enumerate(found.shards):
            parts.keep(number, shard, shard.hash(options, 1))


def part(out: Path, number: int) -> Path:
    (path,) = out.with_name("keys.parquet.parts").glob(f"{number}-*.arrow")
    return path


def resume(source: str, out: Path, pool: Pool) -> list[str]:
    watch = Watch()
    hash_source(read_source(source, "data"), out, OPTIONS, pool, watch)
    table = pq.read_table(out)
    assert table["key"].to_pylist() == KEYS
    assert table["row"].to_pylist() == list(range(GROUPS * ROWS))
    assert not out.with_name("keys.parquet.parts").exists()
    return watch.lines


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def flip_a_key(path: Path) -> None:
    flip(path, path.read_bytes().index(KEYS[3].encode()))


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.rename(path.with_suffix(".away"))
        make(path)

    return replace


def fill_a_folder(path: Path) -> None:
    path.mkdir()
    (path / "file").write_bytes(b"x")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped key": flip_a_key,
    "a flipped bit of the head": lambda path: flip(path, 0),
    "a flipped bit of the checksum": lambda path: flip(path, 20),
    "a flipped bit at the end": lambda path: flip(path, -1),
    "cut in the middle": lambda path: os.truncate(path, path.stat().st_size // 2),
    "cut by a byte": lambda path: os.truncate(path, path.stat().st_size - 1),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0" * 100),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a sparse terabyte": lambda path: os.truncate(path, 1 << 40),
    "text": lambda path: path.write_text("not a part"),
    "a folder": replace_by(fill_a_folder),
    "a link to itself as it was": replace_by(lambda path: path.symlink_to(path.with_suffix(".away"))),
    "a link in a circle": replace_by(lambda path: path.symlink_to(path)),
    "a link to nothing": replace_by(lambda path: path.symlink_to("nothing")),
    "a FIFO": replace_by(os.mkfifo),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_damaged_part_is_hashed_again_and_named(
    source: str, out: Path, pool: Pool, damage: Callable[[Path], object]
) -> None:
    path = part(out, 1)
    damage(path)
    (line,) = resume(source, out, pool)
    assert line.startswith(f"{path} is damaged (")


def test_a_part_without_a_checksum_is_hashed_again(source: str, out: Path, pool: Pool) -> None:
    """As releases before wrote them."""
    path = part(out, 1)
    path.write_bytes(path.read_bytes().partition(b"ARROW1")[1] + b"\0\0")
    assert len(resume(source, out, pool)) == 1


def test_swapped_parts_are_hashed_again(source: str, out: Path, pool: Pool) -> None:
    one, other = part(out, 1), part(out, 2)
    aside = one.with_suffix(".aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    lines = resume(source, out, pool)
    assert [line.split(" ")[0] for line in lines] == [str(one), str(other)]


def test_one_part_for_all_is_hashed_again(source: str, out: Path, pool: Pool) -> None:
    for number in (1, 2, 3):
        shutil.copyfile(part(out, 0), part(out, number))
    assert len(resume(source, out, pool)) == 3


def test_a_part_of_another_run_is_hashed_again(
    source: str, out: Path, pool: Pool, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "keys.parquet"
    other.parent.mkdir()
    finish(source, other, Options("xxh3"))
    shutil.copyfile(part(other, 1), part(out, 1))
    (line,) = resume(source, out, pool)
    assert "another run" in line


def test_a_missing_part_is_hashed_again(source: str, out: Path, pool: Pool) -> None:
    part(out, 1).unlink()
    assert resume(source, out, pool) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("{"),
        lambda path: flip(path, -5),
        lambda path: os.truncate(path, 0),
        lambda path: path.write_text('{"algorithm": "blake3"}'),
        replace_by(fill_a_folder),
        replace_by(os.mkfifo),
        replace_by(lambda path: path.symlink_to("/dev/zero")),
    ],
)
def test_a_damaged_manifest_is_written_again_and_good_parts_stay(
    source: str, out: Path, pool: Pool, damage: Callable[[Path], object]
) -> None:
    manifest = out.with_name("keys.parquet.parts") / "manifest.json"
    damage(manifest)
    (line,) = resume(source, out, pool)
    assert line.startswith(f"{manifest} is damaged (")


def test_with_a_damaged_manifest_parts_with_other_options_are_hashed_again(
    source: str, tmp_path: Path, pool: Pool
) -> None:
    out = tmp_path / "keys.parquet"
    finish(source, out, Options("xxh3"))
    (out.with_name("keys.parquet.parts") / "manifest.json").write_text("")
    assert len(resume(source, out, pool)) == 1 + GROUPS


def test_without_a_manifest_all_is_hashed_again(source: str, out: Path, pool: Pool) -> None:
    folder = out.with_name("keys.parquet.parts")
    fill_a_folder(folder / "folder")
    (folder / "manifest.json").unlink()
    assert resume(source, out, pool) == []


def test_what_lies_where_a_part_is_written_aside_is_replaced(
    source: str, out: Path, pool: Pool, tmp_path: Path
) -> None:
    letter = tmp_path / "letter"
    letter.write_text("mine")
    for number, make in enumerate((fill_a_folder, lambda path: path.symlink_to(letter), os.mkfifo)):
        path = part(out, number)
        make(path.with_suffix(".tmp"))
        path.unlink()
    fill_a_folder(out.with_name("keys.parquet.parts") / "joined.tmp")
    resume(source, out, pool)
    assert letter.read_text() == "mine"


def test_a_part_that_is_damaged_while_it_is_joined_is_named(source: str, out: Path) -> None:
    """The next run hashes it again."""
    found = read_source(source, "data")
    identities = [shard.identity for shard in found.shards]
    path = part(out, 1)
    for damage, why in ((flip_a_key, "damaged"), (Path.unlink, "gone")):
        damage(path)
        with (
            pytest.raises(mmhash.MMHashError, match=f"{path} was valid and is now {why}"),
            open_shard_store(out, found.names, OPTIONS, about_of(OPTIONS)) as parts,
        ):
            parts.join(identities)
        assert not out.exists()


def test_a_folder_of_parts_that_is_none_is_refused(source: str, tmp_path: Path, pool: Pool) -> None:
    out = tmp_path / "keys.parquet"
    parts = out.with_name("keys.parquet.parts")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "letter").write_text("mine")
    for make in (parts.touch, lambda: parts.symlink_to(elsewhere), lambda: parts.symlink_to("no")):
        make()
        with pytest.raises(mmhash.MMHashError, match="no folder of a run"):
            resume(source, out, pool)
        parts.unlink()
    assert (elsewhere / "letter").read_text() == "mine"


def make_deep(path: Path) -> None:
    path.mkdir()
    descriptor = os.open(path, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Make a directory of 1100 levels: shutil.rmtree calls itself for each."""
    yield make_deep
    remove_deep(tmp_path)  # pytest cannot


def remove_deep(path: Path) -> None:
    subprocess.run(["rm", "-rf", str(path)], check=True)


def test_a_part_that_cannot_be_removed_is_named(
    source: str, out: Path, pool: Pool, deep: Callable[[Path], None]
) -> None:
    """The command ended with RecursionError."""
    path = part(out, 1)
    path.unlink()
    deep(path)
    with pytest.raises(mmhash.MMHashError, match="cannot be removed"):
        resume(source, out, pool)
    assert not out.exists()
    remove_deep(path)
    assert resume(source, out, pool) == []
    assert pq.read_table(out)["key"].to_pylist() == KEYS


def test_a_result_is_complete_if_its_parts_cannot_be_removed(
    source: str, out: Path, deep: Callable[[Path], None]
) -> None:
    parts = out.with_name("keys.parquet.parts")
    deep(parts / "d")
    lines: list[str] = []
    found = read_source(source, "data")
    identities = [shard.identity for shard in found.shards]
    for _ in range(2):  # then it is only checked
        with open_shard_store(out, found.names, OPTIONS, about_of(OPTIONS), lines.append) as store:
            store.check_result(identities) if store.result else store.join(identities)
    assert [line.partition(" (")[0] for line in lines] == [f"{parts} cannot be removed"] * 2
    assert pq.read_table(out)["key"].to_pylist() == KEYS
    remove_deep(parts)


def test_a_folder_without_a_manifest_is_not_emptied(
    source: str, tmp_path: Path, pool: Pool
) -> None:
    """Everything in it was removed."""
    out = tmp_path / "new.parquet"
    parts = tmp_path / "new.parquet.parts"
    parts.mkdir()
    (parts / "letter").write_text("mine")
    with pytest.raises(mmhash.MMHashError, match="no folder of a run"):
        resume(source, out, pool)
    assert (parts / "letter").read_text() == "mine"


def test_a_damaged_result_is_refused(source: str, out: Path, pool: Pool) -> None:
    resume(source, out, pool)
    whole = out.read_bytes()
    middle, end = len(whole) // 4, len(whole) - 4
    for content in (whole[:-1], whole[:middle], b"", flipped(whole, middle), flipped(whole, end)):
        out.write_bytes(content)
        with pytest.raises(mmhash.MMHashError, match="damaged"):
            resume(source, out, pool)
        assert out.read_bytes() == content
    out.write_bytes(whole)
    assert resume(source, out, pool) == []


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_the_command_says_which_part(source: str, out: Path) -> None:
    path = part(out, 1)
    flip_a_key(path)
    arguments = ["bulk", source, "--column", "data", "--out", str(out), "--processes", "1"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert f"mmhash: WARNING: {path} is damaged (" in done.stderr
    assert pq.read_table(out)["key"].to_pylist() == KEYS
