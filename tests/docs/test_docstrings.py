"""Run the examples in docstrings."""

import asyncio
import doctest
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mmhash
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.in_process import running

MODULES = [
    "mmhash.client.clients",
    "mmhash.cpu",
    "mmhash.digest",
    "mmhash.engines.engine",
    "mmhash.engines.registry",
    "mmhash.executor.hasher",
    "mmhash.hashing",
    "mmhash.io.file_keys",
    "mmhash.split",
    "mmhash.tags",
]


@pytest.fixture(scope="module")
def service_url() -> Iterator[str]:
    with running(create_app(Settings(decoders=1))) as server:
        yield "http://{}:{}".format(*server.address)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str, service_url: str, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    Image.new("RGB", (8, 8), "navy").save(photo)
    names = {"asyncio": asyncio, "json": json, "np": np, "mmhash": mmhash, "Image": Image}
    names |= {"photo": photo, "service_url": service_url}
    result = doctest.testmod(import_module(name), extraglobs=names)
    assert result.attempted
    assert not result.failed
