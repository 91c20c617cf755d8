import subprocess
import sys

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
