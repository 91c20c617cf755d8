import subprocess
import sys

import pytest

import mmhash


def test_all_names_exist() -> None:
    assert all(hasattr(mmhash, name) for name in mmhash.__all__)


def test_import_is_light_and_a_plain_hash_stays_so() -> None:
    heavy = "{'torch', 'PIL', 'typer', 'rich', 'fastapi', 'pydantic'}"
    program = (
        "import sys, numpy, mmhash;"
        "mmhash.key([b'x', numpy.zeros(3)]); mmhash.digest(memoryview(b'x'));"
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


def test_public_names_are_listed() -> None:
    assert {"Client", "AsyncClient", "AsyncHasher", "sign_tag", "key_file"} <= {*mmhash.__all__}
    assert {*mmhash.__all__} <= {*dir(mmhash)}
    assert "engines" in dir(mmhash)


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mmhash.nothing  # noqa: B018
