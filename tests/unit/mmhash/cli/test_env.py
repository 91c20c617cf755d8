"""`mmhash env`: prints and exits 0, whatever is broken."""

import sys
from importlib import metadata
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import mmhash
from mmhash.cli import env
from mmhash.cli.app import app


def facts() -> dict[str, str]:
    done = CliRunner().invoke(app, ["env"])
    assert done.exit_code == 0
    return {
        name: value.strip()
        for name, value in (line.split(":", 1) for line in done.stdout.splitlines())
    }


def test_names_what_runs() -> None:
    found = facts()
    assert found["mmhash"] == mmhash.__version__
    assert found["numpy"] == np.__version__
    assert int(found["cpu cores"]) >= 1


class _BrokenTorch(ModuleType):
    def __getattr__(self, name: str) -> object:
        raise RuntimeError("the driver is older than time\nand more")


def test_broken_torch_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", _BrokenTorch("torch"))
    assert facts()["gpus"] == "none (the driver is older than time)"


def test_missing_torch_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert facts()["gpus"].startswith("none (")


def test_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(name="NVIDIA H200", total_memory=139 << 30)
    cuda = SimpleNamespace(
        current_device=lambda: 0, device_count=lambda: 1, get_device_properties=lambda _: device
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert facts()["gpu 0"].startswith("NVIDIA H200, 139.0 GiB, ")


def test_missing_and_damaged_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "rich":
            raise ValueError
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(env, "version", version)
    found = facts()
    assert found["torch"] == "not installed"
    assert found["rich"] == "unknown (ValueError)"
