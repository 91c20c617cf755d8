"""A missing package is an error that names the extra with it."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("package", "program", "extra"),
    [
        ("httpx", "mmhash.Client", "client"),
        ("msgspec", "mmhash.kvindex", "kvindex"),
        ("zmq", "mmhash.kvindex", "kvindex"),
        ("tokenizers", "mmhash.prompts.Model", "prompts"),
        ("jinja2", "mmhash.prompts.Model", "prompts"),
        ("pyarrow", "mmhash.ray", "ray"),
        ("starlette", "import mmhash_service.guard", "service"),
    ],
)
def test_the_extra_is_named(package: str, program: str, extra: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; import mmhash; {program}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    start = f"ModuleNotFoundError: {package}"
    assert last.startswith(start)
    assert last.endswith(f" is not installed: pip install 'mmhash-keys[{extra}]'")
