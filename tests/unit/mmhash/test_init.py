import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mmhash


def test_import_is_light_and_plain_hashes_stay_so() -> None:
    heavy = "{'torch', 'PIL', 'typer', 'rich', 'fastapi', 'pydantic'}"
    program = (
        "import sys, numpy, mmhash;"
        "mmhash.key([b'x', numpy.zeros(3)]); mmhash.digest(memoryview(b'x'));"
        "from mmhash.engines import dynamo, trtllm, vllm;"
        "vllm.mm_hash(a=numpy.zeros(3), b=vllm.EncodedMedia(numpy.zeros(3), b'x'));"
        "vllm.block_keys([1] * 16, 16); trtllm.mm_hash([numpy.ones(3), 'a']);"
        "dynamo.mm_hash(numpy.ones((2, 2, 3), 'u1')); dynamo.block_keys([1, 2], 1);"
        f"print({heavy} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_import_loads_neither_numpy_nor_hash_functions() -> None:
    program = "import sys, mmhash; print({'numpy', 'blake3', 'xxhash', 'httpx'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_functions_are_not_replaced_by_the_modules_of_their_names() -> None:
    program = (
        "import mmhash, mmhash.split, mmhash.digest as one; from mmhash.digest import Digest;"
        "from mmhash import digest as other; assert one is other is mmhash.digest;"
        "assert isinstance(mmhash.digest(b''), Digest); assert callable(mmhash.split)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


ROOT = Path(mmhash.__file__).parents[1]
MODULES = {path.stem for path in Path(mmhash.__file__).parent.iterdir()}


def test_dunder_all_the_stubs_and_completion_list_the_same_names() -> None:
    source = ast.parse(Path(mmhash.__file__).read_text())
    checked = next(node for node in source.body if isinstance(node, ast.If))
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    typed = {alias.asname for node in imports if node.module != "mmhash" for alias in node.names}
    modules = {alias.asname for node in imports if node.module == "mmhash" for alias in node.names}
    assert typed == {*mmhash.__all__}
    found = {name for name in dir(mmhash) if not name.startswith("__")}
    assert found - MODULES == typed - MODULES
    assert modules <= found


@pytest.mark.slow
def test_a_type_checker_knows_each_public_name(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    lines = ["import mmhash", *(f"print(mmhash.{name})" for name in mmhash.__all__)]
    lines += ["async def wait(pending: mmhash.PendingKeys) -> list[mmhash.Digest]:"]
    lines += ["    return await pending"]
    program.write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--strict", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mmhash.nothing  # noqa: B018
