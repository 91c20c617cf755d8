"""deploy/: valid by the published schemas, set by settings that exist, and locked down."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker_spec import parse_worker
from mmhash_service.guard.settings import GuardSettings
from mmhash_service.settings import Settings
from tests.support.decoders import wait_for_ready
from tests.support.service import serving

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = sorted(DEPLOY.glob("compose*.yaml"))
KUBERNETES = sorted(
    path
    for path in (
        *DEPLOY.glob("kubernetes-*.yaml"),
        *DEPLOY.glob("kubernetes/**/*.yaml"),
        DEPLOY / "envoy" / "kubernetes.yaml",
    )
    if path.name != "kustomization.yaml"
)
SIDECARS = sorted(DEPLOY.glob("kubernetes-sidecar*.yaml"))
CUSTOM = {
    path.stem: json.loads(path.read_text())
    for path in (Path(__file__).parent / "schemas").glob("*.json")
}
GRACE_S = Settings.model_fields["grace_s"].default

Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    return list(yaml.safe_load_all(path.read_text()))


def pods() -> Iterator[tuple[str, Document]]:
    for path in KUBERNETES:
        for document in documents(path):
            if document["kind"] == "Pod":
                yield document["metadata"]["name"], document["spec"]
            elif document["kind"] == "Deployment":
                yield document["metadata"]["name"], document["spec"]["template"]["spec"]


PODS = dict(pods())


def containers(pod: Document) -> dict[str, Document]:
    return {each["name"]: each for each in (*pod.get("initContainers", ()), *pod["containers"])}


def environment(container: Document) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container.get("env", ())}


def sidecar(path: Path) -> tuple[Document, Document, Document]:
    """The pod, mmhash in it and the engine in it."""
    pod = next(found["spec"] for found in documents(path) if found["kind"] == "Pod")
    return pod, containers(pod)["mmhash"], containers(pod)["engine"]


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_each_file_is_valid_by_the_schemas_of_kubernetes(path: Path) -> None:
    newest = kubernetes_validate.latest_version()
    for document in documents(path):
        if document["kind"] in CUSTOM:
            jsonschema.validate(document, CUSTOM[document["kind"]])
        elif document["kind"] != "PodMonitor":
            kubernetes_validate.validate(document, newest, strict=True)


def test_a_custom_resource_with_an_unknown_field_is_refused() -> None:
    pool, route, *_ = documents(DEPLOY / "envoy" / "kubernetes.yaml")
    pool["spec"]["extensionRef"] = pool["spec"]["endpointPickerRef"]  # its name before v1
    route["spec"]["rules"][0]["backendRefs"][0]["kinds"] = "InferencePool"
    for document in (pool, route):
        with pytest.raises(jsonschema.ValidationError, match="Additional properties"):
            jsonschema.validate(document, CUSTOM[document["kind"]])


def test_the_pool_of_the_picker_names_its_services() -> None:
    found = {
        (one["kind"], one["metadata"]["name"]): one.get("spec", {})
        for one in documents(DEPLOY / "envoy" / "kubernetes.yaml")
    }
    pool = found["InferencePool", "vllm"]
    (backend,) = found["HTTPRoute", "vllm"]["rules"][0]["backendRefs"]
    assert (backend["kind"], backend["name"]) == ("InferencePool", "vllm")
    workers, picker = found["Service", "vllm-workers"], found["Service", "mmhash-picker"]
    assert workers["selector"] == pool["selector"]["matchLabels"]
    assert [one["number"] for one in pool["targetPorts"]] == [workers["ports"][0]["port"]]
    assert pool["endpointPickerRef"]["name"] == "mmhash-picker"
    assert pool["endpointPickerRef"]["port"]["number"] == picker["ports"][0]["port"]
    (container,) = containers(PODS["mmhash-picker"]).values()
    named = dict(one[2:].partition("=")[::2] for one in container["args"][1:] if "--set" not in one)
    assert named["port"] == str(picker["ports"][0]["port"])
    spec = parse_worker(named["worker-dns"])
    assert spec.url == f"http://vllm-workers:{workers['ports'][0]['port']}"
    sets = [one.removeprefix("--set=") for one in container["args"] if "--set=" in one]
    own = [one.removeprefix("gateway.") for one in sets if one.startswith("gateway.")]
    assert all(GatewaySettings.parse_assignment(one) for one in own)
    assert all(Settings.parse_assignment(one) for one in sets if not one.startswith("gateway."))


def test_compose_files_are_valid_by_their_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [*command, *map(str, COMPOSE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_every_variable_is_a_setting() -> None:
    known = {
        variable
        for kind in (Settings, GatewaySettings, GuardSettings)
        for variable in kind.known_variables()
    }
    root = DEPLOY.parent
    for path in (*COMPOSE, *KUBERNETES, root / "Dockerfile", root / "docs" / "docker.md"):
        assert set(re.findall(r"MMHASH_[A-Z_]+", path.read_text())) <= known


@pytest.mark.parametrize(
    "variables",
    [
        *(
            environment(containers(pod)["mmhash"])
            for pod in PODS.values()
            if "mmhash" in containers(pod)
        ),
        *(documents(path)[0]["services"]["mmhash"]["environment"] for path in COMPOSE),
    ],
)
def test_every_value_is_allowed(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in variables.items():
        # The directory of the socket is a volume of the pod.
        monkeypatch.setenv(name, value.replace("/run/mmhash", str(tmp_path)))
    assert Settings().model_fields_set == {
        name.removeprefix("MMHASH_").lower() for name in variables
    }


@pytest.mark.parametrize("name", PODS)
def test_a_pod_may_do_nothing_that_it_need_not(name: str) -> None:
    pod = PODS[name]
    assert pod["enableServiceLinks"] is False
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(pod).values():
        may = container["securityContext"]
        assert may["allowPrivilegeEscalation"] is False
        assert may["capabilities"] == {"drop": ["ALL"]}
        assert may.get("readOnlyRootFilesystem", False) or container["name"] == "engine"
        assert container["resources"]["limits"]["memory"]


@pytest.mark.slow
@pytest.mark.parametrize("path", SIDECARS, ids=lambda path: path.name)
def test_a_sidecars_probes_find_the_server_that_its_environment_starts(
    path: Path, tmp_path: Path
) -> None:
    _, mmhash, _ = sidecar(path)
    at = environment(mmhash)["MMHASH_UDS"]
    variables = {
        name: value.replace(at, str(tmp_path / "s")) for name, value in environment(mmhash).items()
    }
    variables.pop("MMHASH_CUDA_IPC", None)  # there is no GPU
    probes = [
        mmhash[probe]["exec"]["command"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    ]
    commands = [[part.replace(at, str(tmp_path / "s")) for part in probe] for probe in probes]
    start = [sys.executable, "-m", "mmhash", "serve"]
    service = serving(program=start, env=os.environ | variables)
    with service as server, server.new_client() as client:
        wait_for_ready(client)
        for name, *arguments in commands:
            assert name == "mmhash"
            subprocess.run([sys.executable, "-m", "mmhash", *arguments], check=True)


def test_a_pod_stops_after_the_grace_period() -> None:
    services = documents(DEPLOY / "compose.yaml")[0]["services"]
    assert float(services["mmhash"]["stop_grace_period"].removesuffix("s")) > GRACE_S
    for pod in PODS.values():
        if mmhash := containers(pod).get("mmhash"):
            before = mmhash.get("lifecycle", {"preStop": {"sleep": {"seconds": 0}}})
            waits = before["preStop"]["sleep"]["seconds"]
            assert pod["terminationGracePeriodSeconds"] > waits + GRACE_S
