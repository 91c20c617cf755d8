import re
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import mmhash
from mmhash.cli.app import app
from mmhash.engines import known, request_fields
from mmhash.engines.engine import Engine
from mmhash.engines.registry import ENGINES

RUN = CliRunner()


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "red.png"
    Image.new("RGB", (4, 3), "red").save(path)
    return path


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_explain_ends_with_the_engines_fields(engine: Engine, picture: Path) -> None:
    release = engine.releases.latest
    arguments = ["explain", str(picture), "--engine", f"{engine.name}@{release}"]
    done = RUN.invoke(app, arguments, catch_exceptions=False)
    with Image.open(picture) as image:
        key = mmhash.key(image)
    assert re.search(rf"^  key by of=pixels +{key.hex()}$", done.stdout, re.MULTILINE)
    of_file = mmhash.key(picture.read_bytes())
    assert re.search(rf"^  key by of=bytes, .* {of_file.hex()}$", done.stdout, re.MULTILINE)
    fields = engine.request_fields(key, release)
    for value in fields.values():
        for part in value if isinstance(value, list) else [value]:
            assert str(part) in done.stdout


def test_every_range_can_be_explained(picture: Path) -> None:
    for name, ranges in known().items():
        for known_range in ranges:
            first = known_range.split(" to ")[0]
            done = RUN.invoke(
                app,
                ["explain", str(picture), "--engine", f"{name}@{first}"],
                catch_exceptions=False,
            )
            assert f"for {name} {first}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["key", "--engine", "sglang@0.9"], "mmhash knows 0.4.3"), (["key", "--engine", "other"], "sglang, vllm"),
     (["explain", "--engine", "sglang", "-"], "give a file"),
     (["explain", "--engine", "sglang", "/nowhere"], "No such file")],
)  # fmt: skip
def test_wrong_arguments_are_errors(arguments: list[str], words: str) -> None:
    done = RUN.invoke(app, arguments)
    assert words in str(done.exception)


def test_the_steps_have_the_orientation(tmp_path: Path) -> None:
    path = tmp_path / "turned.png"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (3, 2)).save(path, exif=exif)
    steps = RUN.invoke(
        app, ["explain", str(path), "--engine", "vllm@0.32.0"], catch_exceptions=False
    ).stdout
    with Image.open(path) as image:
        fields = request_fields(mmhash.key(image), "vllm@0.32.0", exif_orientation=6)
    assert "EXIF orientation 6" in steps
    assert fields["uuid"] in steps.splitlines()[-2]
    older = RUN.invoke(
        app, ["explain", str(path), "--engine", "vllm@0.23.0"], catch_exceptions=False
    ).stdout
    assert "orientation" not in older
