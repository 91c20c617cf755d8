"""`mmhash verify-engine` against running engines: right recipes pass, altered ones fail."""

import subprocess
import sys
import time

from tests.live.engines import Engine

# Leave out engines with the guard, which would remove verify's hashes.
WITHOUT_GUARD = True

OTHER_RECIPES = {
    "vllm@0.32.0": "vllm@0.30.0",
    "vllm@0.30.0": "vllm@0.32.0",
    "vllm@0.28.0": "vllm@0.18.0",
    "sglang@0.5.23": "sglang@0.5.22",
    "sglang@0.5.20": "sglang@0.5.23",
}


def _verify(engine: Engine, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "mmhash", "verify-engine", engine.url]
    command += ["--events", engine.events.endpoint, *options]
    if engine.seed is not None:
        command += ["--seed", engine.seed]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    print(f"{time.monotonic() - begin:.1f} s: {done.stdout}{done.stderr}")
    return done.returncode, done.stdout


def test_true_recipe(engine: Engine) -> None:
    code, output = _verify(engine)
    assert code == 0, output
    assert "named correctly" in output
    assert "NOT" not in output
    assert len(output.splitlines()) == 1


def test_recipe_of_another_release(engine: Engine) -> None:
    code, output = _verify(engine, "--engine", OTHER_RECIPES[engine.spelling])
    assert code == 1, output
    assert "NOT named correctly" in output
