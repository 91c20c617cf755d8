"""The application as a whole: its settings and its page."""

import os
import re
import subprocess
import sys

import httpx
import pytest

from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings


def test_the_environment_gives_the_settings_that_are_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MMHASH_MAX_PIXELS", "7")
    assert create_app().state.resources.settings.max_pixels == 7
    assert create_app(Settings(max_pixels=8)).state.resources.settings.max_pixels == 8


def test_the_openapi_page_has_every_call_and_its_problems(client: httpx.Client) -> None:
    page = client.get("/openapi.json").json()
    assert page["paths"].keys() == {
        "/annotate",
        "/blocks",
        "/hash",
        "/health",
        "/info",
        "/live",
        "/metrics",
        "/pad",
        "/plan",
        "/ready",
        "/version",
    }
    hash_call = page["paths"]["/hash"]["post"]
    assert hash_call["responses"].keys() == {"200", "default"}
    assert hash_call["responses"]["default"]["content"].keys() == {"application/problem+json"}
    assert "application/octet-stream" in hash_call["requestBody"]["content"]


def test_every_reference_of_the_page_leads_somewhere(client: httpx.Client) -> None:
    page = client.get("/openapi.json")
    schemas = page.json()["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/(\w+)"', page.text))
    assert {"HashBody", "JsonItem", "PadBody", "BlocksBody"} <= references <= schemas.keys()


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
