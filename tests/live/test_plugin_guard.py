"""The attacks of test_guard.py on engines that the plugin guards."""

import re
from pathlib import Path

import pytest

from tests.live import fork_server
from tests.live.engines import Engine, variables_of
from tests.live.environments import Environment
from tests.live.test_guard import (  # noqa: F401  (pytest collects them here, too)
    test_content_hash,
    test_embedding,
    test_embedding_of_another_image,
    test_features_by_hash,
    test_forged_hash,
    test_hash_without_media,
    test_preset_hash,
    test_swapped_hashes,
    test_tag_of_another_tenant,
    test_tag_of_this_tenant,
)

TAKES_HASHES = True


@pytest.fixture
def engine(plugged: Engine) -> Engine:
    """The engine that the attacks of test_guard.py are made on."""
    return plugged


@pytest.mark.parametrize(
    ("features", "is_reused"), [("guard", False), pytest.param("", True, marks=pytest.mark.slow)]
)
def test_a_forged_uuid_in_an_engine_embedded_in_python(
    plugin_site: Path, features: str, is_reused: bool
) -> None:
    """Without the guard, the second of two images gets the blocks of the first."""
    cached = _cached_when_embedded(Environment("vllm", "0.32.0"), plugin_site, features)
    assert (cached["cached"] > 0) == is_reused


@pytest.mark.parametrize(
    ("features", "names"),
    [
        ("guard", set()),
        ("keys,features", {"forged", "key"}),
        pytest.param("features", {"forged", "own"}, marks=pytest.mark.slow),
        pytest.param("", {"forged", "own"}, marks=pytest.mark.slow),
    ],
)
def test_names_of_features_in_an_engine_embedded_in_python(
    plugin_site: Path, features: str, names: set[str]
) -> None:
    """An image is reused under a name: a forged one, the key of its features, or SGLang's hash."""
    cached = _cached_when_embedded(Environment("sglang", "0.5.23"), plugin_site, features)
    assert {name for name, tokens in cached.items() if tokens} == names


def _cached_when_embedded(environment: Environment, site: Path, features: str) -> dict[str, int]:
    """Run an engine embedded in Python. Return the cached tokens that its program prints."""
    environment.build_or_skip()
    program = Path(__file__).parent / "stand_ins" / f"embedded_{environment.engine}.py"
    _, output = fork_server.run(
        [environment.command("python"), str(program), str(environment.model("qwen2_vl"))],
        env=variables_of() | {"PYTHONPATH": str(site), "MMHASH_PLUGIN": features},
        captured=(1, 2),
    )
    found = re.findall(r"^(cached|forged|key|own): (\d+)$", output, re.MULTILINE)
    assert found, output[-2000:]
    return {name: int(tokens) for name, tokens in found}
