"""The alerts and the dashboard ask for metrics that there are, and are valid."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.in_process import running

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "mmhash.json").read_text())
TOOL = shutil.which("promtool") or ""


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def test_every_metric_that_is_asked_for_exists() -> None:
    asked = {name for text in expressions() for name in re.findall(r"\bmmhash_\w+", text)}
    settings = Settings(decoders=1), GatewaySettings(worker_list=("http://127.0.0.1:9",))
    with running(create_app(*settings)) as server:
        text = server.client.get("/metrics").text
    found = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    found |= {f"{name}_{part}" for name in found for part in ("bucket", "count", "sum")}
    assert asked <= found, asked - found


@pytest.mark.skipif(not TOOL, reason="needs promtool, of Prometheus")
@pytest.mark.parametrize("check", ["rules", "config"])
def test_promtool_accepts_the_rules_and_the_configuration(check: str) -> None:
    path = RULES if check == "rules" else DEPLOY / "prometheus" / "prometheus.yml"
    done = subprocess.run(
        [TOOL, "check", check, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
