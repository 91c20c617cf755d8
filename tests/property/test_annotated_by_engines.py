"""SGLang's own code, from its released wheel, reads annotated requests."""

import ast
import hashlib
import subprocess
import sys
import typing
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

import mmhash
from mmhash.engines import sglang
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.in_process import running

pytestmark = pytest.mark.slow

RELEASE = "0.5.23"
REQUESTS = "sglang/srt/managers/io_struct.py"
IDENTITY = "sglang/srt/multimodal/cache/identity.py"
STEPS = {
    "_determine_batch_size",
    "_handle_parallel_sampling",
    "_handle_beam_search_parallel_sampling",
    "_sampling_params_beam_width",
    "_normalize_image_data",
    "_normalize_mm_hashes",
}

ONE, TWO = "AAEC", "data:image/png;base64,AwQF"
HASH_OF = {
    ONE: sglang.mm_hash(mmhash.key(b"\0\1\2")),
    TWO: sglang.mm_hash(mmhash.key(b"\3\4\5")),
}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """A client of a service."""
    with running(create_app(Settings())) as server:
        yield server.client


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The engine's wheel: its package needs a GPU machine's."""
    folder = tmp_path_factory.mktemp("sglang")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
    done = subprocess.run(
        [*pip, "--no-deps", "--dest", str(folder), f"sglang=={RELEASE}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"pip cannot get it: {done.stderr.strip().splitlines()[-1]}")
    (wheel,) = folder.glob("sglang-*.whl")
    return zipfile.ZipFile(wheel)


@pytest.fixture(scope="module")
def read_by_engine(archive: zipfile.ZipFile) -> Callable[[dict[str, Any]], Any]:
    """A /generate request, taken through the engine's own steps up to its `mm_hashes`."""
    tree = ast.parse(archive.read(REQUESTS))
    (request,) = (
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "GenerateReqInput"
    )
    request.decorator_list = []
    request.body = [
        node for node in request.body if isinstance(node, ast.FunctionDef) and node.name in STEPS
    ]
    namespace: dict[str, Any] = {}
    exec(compile(ast.Module([request], []), REQUESTS, "exec"), namespace)

    def read_by_engine(body: dict[str, Any]) -> Any:
        read = namespace["GenerateReqInput"]()
        nothing = dict.fromkeys(("input_ids", "input_embeds", "sampling_params", "mm_hashes"))
        vars(read).update({**nothing, "mm_content_hashes": None, **body})
        read._determine_batch_size()
        read._handle_parallel_sampling()
        if not read.is_single:
            read._normalize_image_data(read.batch_size * read.parallel_sample_num)
            read._normalize_mm_hashes(read.batch_size * read.parallel_sample_num)
        return read

    return read_by_engine


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize(
    ("text", "image_data"),
    [
        ("a", ONE),
        ("a", [ONE]),
        (["a"], TWO),
        (["a", "b"], ONE),
        (["a", "b"], [ONE, TWO]),
        (["a", "b"], [[ONE, TWO, ONE], [TWO]]),
        (["a", "b"], [[], [TWO]]),
    ],
)
def test_each_image_of_each_prompt_has_its_hash(
    client: httpx.Client,
    read_by_engine: Callable[[dict[str, Any]], Any],
    text: Any,
    image_data: Any,
    samples: int,
) -> None:
    body = {"text": text, "image_data": image_data, "sampling_params": {"n": samples}}
    answer = client.post(f"/annotate?engine=sglang@{RELEASE}", json=body)
    read = read_by_engine(answer.json()["request"])
    if read.is_single:
        images = [image_data] if isinstance(image_data, str) else image_data
        assert read.mm_hashes == [HASH_OF[image] for image in images]
    else:
        assert len(read.mm_hashes) == samples * read.batch_size
        assert read.mm_hashes == [[HASH_OF[of] for of in images] for images in read.image_data]


def test_a_content_hash_is_what_the_engine_takes_of_the_bytes(
    client: httpx.Client, archive: zipfile.ZipFile
) -> None:
    tree = ast.parse(archive.read(IDENTITY))
    wanted = {"parse_content_hash", "_digest_bytes", "CONTENT_HASH_PREFIX", "_SHA256_HEX_LENGTH"}
    tree.body = [
        node
        for node in tree.body
        if getattr(node, "name", None) in wanted
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in wanted)
    ]
    engine: dict[str, Any] = {"hashlib": hashlib, "Optional": typing.Optional}
    exec(compile(tree, IDENTITY, "exec"), engine)
    image = {"type": "image_url", "image_url": {"url": TWO}}
    answer = client.post(
        f"/annotate?engine=sglang@{RELEASE}", json={"messages": [{"content": [image]}]}
    )
    (part,) = answer.json()["request"]["messages"][0]["content"]
    sent = part["image_url"]["content_hash"]
    assert engine["parse_content_hash"](sent) == sent == engine["_digest_bytes"](b"\3\4\5")
