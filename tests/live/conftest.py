"""Starts one engine at a time, and each only once for all of its tests."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import models, results
from tests.live.engines import Engine, running
from tests.live.environments import CACHE, Environment
from tests.live.prompts import guard_settings
from tests.live.setups import WIDE_OPEN, Setup

LORA = "tiny-lora"


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

_GUARDS = {
    "always": "mmhash_service.guard.Guard",
    "switched": "tests.live.stand_ins.switched_guard.SwitchedGuard",
}

_PARAMETERS = [pytest.param(one, id=one.name) for one in SETUPS]


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
    setup = callspec.params.get("engine") if callspec else None
    return setup if isinstance(setup, Setup) else None


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
    return not (getattr(module, "WITHOUT_GUARD", False) and setup.guard == "always")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _is_live(session.config):
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


@pytest.fixture(scope="session", params=_PARAMETERS)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A running engine. pytest groups the tests by engine, so each engine starts once."""
    setup: Setup = request.param
    environment = Environment(setup.engine, setup.release)
    environment.build_or_skip()
    options = list(setup.options)
    variables = {} if setup.seed is None else {"PYTHONHASHSEED": setup.seed}
    loras: dict[str, str] = {}
    if setup.guard is not None:
        variables |= guard_settings(environment.spelling)
    if setup.guard is not None and setup.engine == "vllm":
        options += ["--middleware", _GUARDS[setup.guard]]
    if setup.has_lora:
        loras[LORA] = str(environment.model("qwen2_vl") / LORA)
        models.write_lora(Path(loras[LORA]))
        options += ["--enable-lora", "--max-lora-rank", "8", "--lora-modules"]
        options += [f"{LORA}={loras[LORA]}"]
    log = tmp_path_factory.mktemp("engine") / f"{setup.engine}-{setup.release}.log"
    try:
        with running(
            environment,
            "qwen2_vl",
            *options,
            log=log,
            variables=variables,
            has_guard=setup.guard is not None,
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
        (kept / "last.json").write_text(json.dumps(setup._asdict()))
