"""Keys of a Ray dataset on a cluster of two workers are those of a local run."""

import gc
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import mmhash.ray
from mmhash.bulk.items import BulkOptions
from mmhash.cli.app import app

ROOT = Path(__file__).parents[3]
ITEMS = [b"%d" % number * number for number in range(40)]

# Its own settings are deprecated, and it reads them all. It forgets to close its logs, which is
# noticed whenever garbage is collected.
UNCLOSED = r"unclosed file .*/ray/session_"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
    pytest.mark.filterwarnings(f"ignore:{UNCLOSED}:ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The only one of all tests: to start one takes long, and sometimes too long for Ray itself."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")  # where Ray keeps its cluster's token
        patch.setenv("HOME", str(home))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(
            num_cpus=2, include_dashboard=False, object_store_memory=80 << 20,
            log_to_driver=False, configure_logging=False,
        )  # fmt: skip
        yield
        ray.shutdown()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", UNCLOSED, ResourceWarning)
            gc.collect()  # now, not in a later test


def bulk(tmp_path: Path, source: Path, *options: str) -> list[dict[str, object]]:
    out = tmp_path / "keys"
    done = CliRunner().invoke(app, ["bulk", str(source), "--out", str(out), *options])
    assert done.exit_code in {0, 1}, done.output
    rows: list[dict[str, object]] = pq.read_table(out).to_pylist()
    shutil.rmtree(out)
    return rows


def test_keys_are_those_of_the_local_run(tmp_path: Path, cluster: None) -> None:
    import ray

    contents = tmp_path / "contents.parquet"
    values = [*ITEMS, None]
    table = pa.table({"name": [f"n{i}" for i in range(41)], "data": pa.array(values, pa.binary())})
    pq.write_table(table, contents)
    expected = bulk(tmp_path, contents, "--column", "data", "--engine", "sglang")
    dataset = ray.data.from_arrow([table.slice(0, 15), table.slice(15)])
    found = mmhash.ray.keys(dataset, "data", engines=("sglang",)).take_all()
    assert sorted(found, key=lambda row: int(row["name"][1:])) == [
        {"name": f"n{row.pop('row')}", **row} for row in expected
    ]

    folder = tmp_path / "files"
    folder.mkdir()
    for number, item in enumerate(ITEMS):
        (folder / f"{number:02}").write_bytes(item)
    paths = [str(path) for path in sorted(folder.iterdir())] + [str(folder / "missing")]
    (tmp_path / "list").write_text("\n".join(paths))
    expected = bulk(tmp_path, tmp_path / "list", "--algorithm", "xxh3")
    dataset = ray.data.from_items([{"path": path} for path in paths], override_num_blocks=2)
    found = mmhash.ray.keys(dataset, "path", algorithm="xxh3").take_all()
    assert sorted(found, key=lambda row: paths.index(row["path"])) == expected
    assert [row["error"] for row in found if row["error"]] == [
        "FileNotFoundError: No such file or directory"
    ]


def test_a_column_of_paths_that_keys_writes_is_refused() -> None:
    """Paths stay, so that the result would have two of the name."""
    batch = pa.table({"key": ["one"], "id": [1]})
    with pytest.raises(mmhash.InputError, match="columns that keys\\(\\) writes: key"):
        mmhash.ray._with_keys(batch, "key", BulkOptions())


def test_the_program_of_the_docs(tmp_path: Path, cluster: None) -> None:
    image = (ROOT / "examples" / "navy.png").read_bytes()
    (tmp_path / "images").mkdir()
    pq.write_table(pa.table({"id": [7], "data": [image]}), tmp_path / "images" / "0.parquet")
    (program,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "bulk.md").read_text(), re.DOTALL
    )
    exec(program.replace("s3://bucket", str(tmp_path)), {})
    (row,) = pq.read_table(tmp_path / "keys").to_pylist()
    assert (row["id"], row["kind"], row["error"]) == (7, "image", None)
