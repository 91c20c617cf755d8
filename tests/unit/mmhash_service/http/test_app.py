"""The application as a whole: what it imports, and what it needs to start."""

import os
import subprocess
import sys

import pytest


def test_an_application_without_workers_imports_no_kv_index() -> None:
    program = (
        "import sys, mmhash_service.http.app; app = mmhash_service.http.app.create_app();"
        "print({'zmq', 'mmhash.kvindex', 'mmhash_service.gateway.fleet'} & set(sys.modules))"
    )
    variables = {name: text for name, text in os.environ.items() if "MMHASH" not in name}
    done = subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


@pytest.mark.slow
def test_a_vendored_copy_starts_without_the_distribution_s_metadata() -> None:
    program = """
import importlib.metadata as metadata
real = metadata.distribution
def distribution(name):
    if name == "mmhash-keys":
        raise metadata.PackageNotFoundError(name)
    return real(name)
metadata.distribution = distribution
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
create_app(Settings(decoders=1))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
