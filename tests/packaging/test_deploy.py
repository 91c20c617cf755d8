"""deploy/: valid by the schemas of Kubernetes and compose, set by settings that exist, and locked down."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.guard.settings import GuardSettings
from mmhash_service.settings import Settings
from tests.support.decoders import wait_for_ready
from tests.support.service import serving

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = sorted(DEPLOY.glob("compose*.yaml"))
KUBERNETES = sorted(
    path
    for path in (*DEPLOY.glob("kubernetes-*.yaml"), *DEPLOY.glob("kubernetes/**/*.yaml"))
    if path.name != "kustomization.yaml"
)
SIDECARS = sorted(DEPLOY.glob("kubernetes-sidecar*.yaml"))
GRACE_S = Settings.model_fields["grace_s"].default
MIB = 1 << 20
UNITS = {"Mi": MIB, "mb": MIB, "Gi": 1 << 30, "gb": 1 << 30}
TMP = 256 * MIB  # the tmpfs at /tmp counts towards the container's memory

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


def mounts(container: Document) -> dict[str, str]:
    return {each["name"]: each["mountPath"] for each in container["volumeMounts"]}


def sidecar(path: Path) -> tuple[Document, Document, Document]:
    """The pod, mmhash in it and the engine in it."""
    pod = next(found["spec"] for found in documents(path) if found["kind"] == "Pod")
    return pod, containers(pod)["mmhash"], containers(pod)["engine"]


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_kubernetes_takes_it(path: Path) -> None:
    newest = kubernetes_validate.latest_version()
    for document in documents(path):
        if document["kind"] != "PodMonitor":  # of the Prometheus operator: see test_kustomize.py
            kubernetes_validate.validate(document, newest, strict=True)


def test_a_misspelt_field_is_found() -> None:
    (pod,) = documents(DEPLOY / "kubernetes-sidecar.yaml")
    pod["spec"]["enableServicelinks"] = pod["spec"].pop("enableServiceLinks")
    with pytest.raises(kubernetes_validate.ValidationError, match="enableServicelinks"):
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


def check_compose(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False)


def test_compose_takes_it_and_finds_a_misspelt_field(tmp_path: Path) -> None:
    good = check_compose(*COMPOSE)
    assert good.returncode == 0, good.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((DEPLOY / "compose.yaml").read_text().replace("read_only:", "readonly:"))
    bad = check_compose(wrong)
    assert bad.returncode == 1
    assert "readonly" in bad.stdout


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


def limited() -> Iterator[tuple[str, dict[str, str], str]]:
    """Yield the name, the variables and the memory limit of each mmhash container."""
    for name, pod in PODS.items():
        if mmhash := containers(pod).get("mmhash"):
            yield name, environment(mmhash), mmhash["resources"]["limits"]["memory"]
    for path in COMPOSE:
        service = documents(path)[0]["services"]["mmhash"]
        if "mem_limit" in service:  # compose.cuda.yaml is an addition
            yield path.name, service["environment"], service["mem_limit"]


def memory_bound(variables: dict[str, str]) -> int:
    """The most that the service takes, as docs/settings.md has it."""
    names = ("processes", "memo_bytes", "max_held_bytes", "decoders", "max_pixels")
    given = {
        name: int(variables.get(f"MMHASH_{name.upper()}", Settings.model_fields[name].default))
        for name in names
    }
    assert given["decoders"], "the number of decoders is that of the node's cores"
    decoder = 192 * MIB + 20 * given["max_pixels"]
    worker = 192 * MIB + given["memo_bytes"] + 5 * given["max_held_bytes"]
    return given["processes"] * (worker + (given["decoders"] + 1) * decoder)


@pytest.mark.parametrize(("name", "variables", "limit"), list(limited()))
def test_the_limit_covers_what_the_service_may_take(
    name: str, variables: dict[str, str], limit: str
) -> None:
    number, unit = re.fullmatch(r"(\d+)(\w+)", limit).groups()  # type: ignore[union-attr]
    assert int(number) * UNITS[unit] >= memory_bound(variables) + TMP, name


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


@pytest.mark.parametrize("path", SIDECARS, ids=lambda path: path.name)
def test_a_sidecar_starts_first_and_shares_user_socket_and_memory(path: Path) -> None:
    pod, mmhash, engine = sidecar(path)
    assert pod["initContainers"] == [mmhash]
    assert mmhash["restartPolicy"] == "Always"
    assert pod["securityContext"]["runAsUser"] == 65532
    assert not any("runAsUser" in each["securityContext"] for each in (mmhash, engine))
    shared = mounts(mmhash).items() & mounts(engine).items()
    assert shared == {("socket", "/run/mmhash"), ("shm", "/dev/shm")}
    assert mounts(mmhash)["tmp"] == "/tmp"
    assert {each["name"] for each in pod["volumes"]} == mounts(mmhash).keys()
    assert all(each["emptyDir"]["medium"] == "Memory" for each in pod["volumes"])


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


def test_cuda_ipc_takes_the_same_processes_and_the_same_gpu() -> None:
    pod, *both = sidecar(DEPLOY / "kubernetes-sidecar-cuda.yaml")
    assert pod["shareProcessNamespace"] is True
    (claim,) = pod["resourceClaims"]
    for container in both:
        assert container["resources"]["claims"] == [{"name": claim["name"]}]
    (template,) = (
        found
        for found in documents(DEPLOY / "kubernetes-sidecar-cuda.yaml")
        if found["kind"] == "ResourceClaimTemplate"
    )
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    services = documents(DEPLOY / "compose.cuda.yaml")[0]["services"]
    assert services["engine"]["deploy"] == services["mmhash"]["deploy"]
    assert services["engine"]["pid"] == services["engine"]["ipc"] == "service:mmhash"


def test_the_cuda_sidecar_is_the_sidecar_and_what_cuda_takes() -> None:
    pod, mmhash, engine = sidecar(DEPLOY / "kubernetes-sidecar-cuda.yaml")
    del pod["shareProcessNamespace"], pod["resourceClaims"]
    mmhash["env"].remove({"name": "MMHASH_CUDA_IPC", "value": "true"})
    plain, plain_mmhash, plain_engine = sidecar(DEPLOY / "kubernetes-sidecar.yaml")
    for one, other in ((mmhash, plain_mmhash), (engine, plain_engine)):
        del one["resources"], other["resources"]
    mmhash["image"] = mmhash["image"].removesuffix("-cuda")
    assert pod == plain


def test_the_last_calls_have_their_time() -> None:
    services = documents(DEPLOY / "compose.yaml")[0]["services"]
    assert float(services["mmhash"]["stop_grace_period"].removesuffix("s")) > GRACE_S
    for pod in PODS.values():
        if mmhash := containers(pod).get("mmhash"):
            before = mmhash.get("lifecycle", {"preStop": {"sleep": {"seconds": 0}}})
            waits = before["preStop"]["sleep"]["seconds"]
            assert pod["terminationGracePeriodSeconds"] > waits + GRACE_S


def test_the_services_of_compose_may_do_nothing_that_they_need_not() -> None:
    services = documents(DEPLOY / "compose.yaml")[0]["services"]
    monitoring = documents(DEPLOY / "compose.monitoring.yaml")[0]["services"]
    for service in (services["mmhash"], services["redis"], *monitoring.values()):
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["mem_limit"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        # Grafana writes its plugins below its own directories.
        assert service.get("read_only", False) or service is monitoring["grafana"]
    assert not any("ports" in services[name] for name in ("mmhash", "redis"))
    assert services["engine"]["volumes"] == services["mmhash"]["volumes"]


def test_monitoring_finds_what_it_mounts_and_scrapes() -> None:
    services = documents(DEPLOY / "compose.monitoring.yaml")[0]["services"]
    for service in services.values():
        sources = [volume.split(":")[0] for volume in service.get("volumes", ())]
        assert all((DEPLOY / path).exists() for path in sources if path.startswith("./"))
    (scrape,) = documents(DEPLOY / "prometheus" / "prometheus.yml")[0]["scrape_configs"]
    port = services["mmhash"]["environment"]["MMHASH_METRICS_PORT"]
    assert scrape["static_configs"] == [{"targets": [f"mmhash:{port}"]}]
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = documents(provisioning / "datasources" / "prometheus.yaml")[0]["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = documents(provisioning / "dashboards" / "mmhash.yaml")[0]["providers"]
    (dashboard,) = (each for each in services["grafana"]["volumes"] if "mmhash.json" in each)
    assert dashboard.split(":")[1].rpartition("/")[0] == provider["options"]["path"]


def test_nobody_but_mmhash_reaches_the_memo() -> None:
    for name in ("compose.yaml", "compose.monitoring.yaml"):
        found = documents(DEPLOY / name)[0]
        services = found["services"]
        users = {name for name, each in services.items() if "memo" in each.get("networks", ())}
        assert users == {"mmhash", "redis"}
        assert services["redis"]["networks"] == ["memo"]
        assert found["networks"]["memo"]["internal"] is True
    (policy,) = (
        document["spec"]
        for document in documents(DEPLOY / "kubernetes" / "components" / "memo" / "redis.yaml")
        if document["kind"] == "NetworkPolicy"
    )
    assert policy["podSelector"] == {"matchLabels": {"app": "mmhash-memo"}}
    assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": {"app": "mmhash"}}}]
