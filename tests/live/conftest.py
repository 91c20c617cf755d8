"""Starts each engine once for all of its tests.

`make live` has two test processes, so two engines run at a time.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.live import prompts, results
from tests.live.engines import Engine, running
from tests.live.environments import CACHE, Environment
from tests.live.models import LORA
from tests.live.setups import WIDE_OPEN, Setup

SETUPS = (
    Setup("vllm", "0.32.0", WIDE_OPEN, guard="switched", has_lora=True, quick="all"),
    Setup("vllm", "0.28.0", seed="0", has_lora=True, quick="all"),
    Setup("sglang", "0.5.23", guard="switched", quick="all"),
    Setup(
        "vllm",
        "0.32.0",
        (*WIDE_OPEN, "--prefix-caching-hash-algo", "sha256_cbor"),
        algorithm="sha256_cbor",
        guard="always",
        has_lora=True,
    ),
    Setup("vllm", "0.30.0", has_lora=True),
    Setup("sglang", "0.5.20", guard="switched", quick="names"),
)

PLUGGED = (
    Setup("vllm", "0.32.0", WIDE_OPEN, guard="plugin", quick="all"),
    Setup("sglang", "0.5.23", guard="plugin", quick="all"),
    Setup(
        "sglang",
        "0.5.23",
        ("--load-format", "dummy", "--enable-multimodal"),
        guard="plugin",
        model="qwen3_vl",
        quick="all",
    ),
    Setup("sglang", "0.5.20", guard="plugin", quick="all"),
)

_GUARDS = {
    "always": "mmhash_service.guard.Guard",
    "switched": "tests.live.stand_ins.switched_guard.SwitchedGuard",
}

TENANTS = {"acme": "11" * 32}

# Lets a test break the plugin, and mend it again, in a running engine.
_BREAKABLE = """
import os, pathlib, time

import mmhash

key = mmhash.key

def breakable(*arguments, **options):
    mode = pathlib.Path(os.environ["LIVE_MODE"]).read_text()
    if mode == "raises":
        raise RuntimeError("broken")
    if mode == "slow":
        time.sleep(5)
    return key(*arguments, **options)

mmhash.key = breakable
"""


class EngineScheduling(LoadScopeScheduling):
    """Runs all tests of a release in one test process, which then imports the dependencies once."""

    def _split_scope(self, nodeid: str) -> str:
        path, _, test = nodeid.partition("::")
        release = re.search(r"\[((vllm|sglang)@[\d.]+)", test)
        return path if release is None else release[1]


@pytest.hookimpl(optionalhook=True)  # pytest may run without xdist's plugin
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> EngineScheduling | None:
    return EngineScheduling(config, log) if _is_live(config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="needs engines: make live")
    items[:] = [item for item in items if _is_wanted(item)]
    for item in items:
        if not item.path.is_relative_to(Path(__file__).parent):
            continue
        item.add_marker(pytest.mark.live)
        if not _is_quick(item):
            item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.timeout(1200))
        if not _is_live(config):
            item.add_marker(skip)


def _is_quick(item: pytest.Item) -> bool:
    """Return True if `make live` runs a test. Tests without an engine are marked if they are slow."""
    setup = _setup_of(item)
    if setup is None:
        return True
    return setup.quick == "all" or (setup.quick == "names" and item.path.stem == "test_names")


def _setup_of(item: pytest.Item) -> Setup | None:
    callspec = getattr(item, "callspec", None)
    given = callspec.params.values() if callspec else ()
    return next((one for one in given if isinstance(one, Setup)), None)


def _is_live(config: pytest.Config) -> bool:
    """Return True if the run asks for live tests, as in `-m live`."""
    expression = config.getoption("markexpr")
    return "live" in expression and "not live" not in expression


def _is_wanted(item: pytest.Item) -> bool:
    """Return True if a test is for this way of starting an engine.

    Constants of its module and the decorator `only` say so.
    """
    setup = _setup_of(item)
    if setup is None:
        return True
    parent = item.getparent(pytest.Module)
    module = None if parent is None else parent.obj
    only_for = getattr(getattr(item, "function", None), "only", setup.engine)
    if only_for != setup.engine:
        return False
    releases = getattr(module, "RELEASES", None)
    if releases is not None and f"{setup.engine}@{setup.release}" not in releases:
        return False
    if getattr(module, "TAKES_HASHES", False) and setup.model == "qwen3_vl":
        return False
    return not (getattr(module, "WITHOUT_GUARD", False) and setup.guard == "always")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _is_live(session.config) and not hasattr(session.config, "workerinput"):
        results.publish()


@pytest.fixture(scope="session")
def plugin_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel, where engines find its entry points."""
    folder = tmp_path_factory.mktemp("plugin")
    build = ("build", "--wheel", "--no-isolation", "--outdir", str(folder))
    for command in (build, ("pip", "install", "--no-deps", "--target", str(folder / "site"))):
        wheels = list(map(str, folder.glob("*.whl")))
        subprocess.run(
            [sys.executable, "-m", *command, *wheels],
            cwd=Path(__file__).parents[2],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return folder / "site"


@pytest.fixture(scope="session", params=SETUPS, ids=lambda setup: setup.name)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A running engine. pytest groups the tests by engine, so each engine starts once."""
    setup: Setup = request.param
    options: list[str] = []
    variables = {} if setup.seed is None else {"PYTHONHASHSEED": setup.seed}
    if setup.guard is not None:
        variables |= prompts.guard_settings(f"{setup.engine}@{setup.release}")
    if setup.guard is not None and setup.engine == "vllm":
        options += ["--middleware", _GUARDS[setup.guard]]
    with _started(setup, tmp_path_factory.mktemp("engine"), options, variables) as engine:
        yield engine


@pytest.fixture(scope="session", params=PLUGGED, ids=lambda setup: setup.name)
def plugged(
    request: pytest.FixtureRequest, plugin_site: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A running engine whose plugin has keys and the guard, which takes the tags of one tenant."""
    setup: Setup = request.param
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "sitecustomize.py").write_text(_BREAKABLE)
    (folder / "mode").write_text("fine")
    variables = {
        "PYTHONPATH": f"{folder}{os.pathsep}{plugin_site}",
        "MMHASH_PLUGIN": "keys,guard",
        "MMHASH_GUARD_SECRETS": prompts.SECRET.hex(),
        "MMHASH_GUARD_TENANT": "victim",
        "LIVE_MODE": str(folder / "mode"),
    }
    if setup.engine == "sglang":
        variables |= {"MMHASH_TENANTS": json.dumps(TENANTS), "SGLANG_PLUGINS": "mmhash"}
    with _started(setup, folder, [], variables) as engine:
        assert "mmhash is on" in engine.log.read_text()
        yield engine


@contextmanager
def _started(
    setup: Setup, folder: Path, options: list[str], variables: dict[str, str]
) -> Iterator[Engine]:
    environment = Environment(setup.engine, setup.release)
    environment.build_or_skip()
    loras: dict[str, str] = {}
    if setup.has_lora:
        loras[LORA] = str(environment.model(setup.model) / LORA)
        options = [*options, "--enable-lora", "--max-lora-rank", "8", "--lora-modules"]
        options.append(f"{LORA}={loras[LORA]}")
    log = folder / "engine.log"
    try:
        with running(
            environment,
            setup.model,
            *setup.options,
            *options,
            log=log,
            variables=variables,
            has_guard=setup.guard in {"always", "switched"},
        ) as started:
            started.name_of_setup = setup.name
            started.algorithm, started.seed, started.loras = setup.algorithm, setup.seed, loras
            started.guard = setup.guard
            yield started
    finally:
        kept = CACHE / "logs"
        kept.mkdir(exist_ok=True)
        if log.exists():
            shutil.copy(log, kept / f"{setup.name.replace(', ', '-')}.log")
