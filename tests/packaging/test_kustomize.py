"""deploy/kubernetes: each overlay, rendered by a real kustomize, is valid and complete."""

import base64
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from mmhash_service.settings import Settings

ROOT = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = sorted(path.parent for path in ROOT.glob("overlays/*/kustomization.yaml"))
CONFIGURATIONS = sorted(ROOT.glob("**/kustomization.yaml"))
NEEDED = "needs kustomize or kubectl"

Document = dict[str, Any]


def rendered(overlay: Path) -> dict[tuple[str, str], Document]:
    """Return the overlay's resources by kind and name."""
    if shutil.which("kustomize"):
        command = ["kustomize", "build"]
    elif shutil.which("kubectl"):
        command = ["kubectl", "kustomize"]
    else:
        pytest.skip(NEEDED)
    done = subprocess.run([*command, str(overlay)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = list(yaml.safe_load_all(done.stdout))
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod_template(resources: dict[tuple[str, str], Document]) -> Document:
    return resources["Deployment", "mmhash"]["spec"]["template"]


def test_every_file_that_a_configuration_names_exists_and_every_file_is_named() -> None:
    named = set()
    for path in CONFIGURATIONS:
        found = yaml.safe_load(path.read_text())
        files = [*found.get("resources", ()), *found.get("components", ())]
        files += [file for one in found.get("secretGenerator", ()) for file in one["files"]]
        for file in files:
            target = (path.parent / file).resolve()
            assert target.exists()
            named.add(target / "kustomization.yaml" if target.is_dir() else target)
    overlays = {overlay / "kustomization.yaml" for overlay in OVERLAYS}
    assert named | overlays == {path for path in ROOT.glob("**/*") if path.is_file()}


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_kubernetes_takes_what_an_overlay_renders(overlay: Path) -> None:
    resources = rendered(overlay)
    assert resources
    for (kind, _), document in resources.items():
        if kind != "PodMonitor":
            kubernetes_validate.validate(
                document, kubernetes_validate.latest_version(), strict=True
            )


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_every_reference_of_an_overlay_leads_to_a_resource(overlay: Path) -> None:
    resources = rendered(overlay)
    labels = [
        each["spec"]["template"]["metadata"]["labels"]
        for (kind, _), each in resources.items()
        if kind == "Deployment"
    ]
    for document in resources.values():
        spec = document.get("spec", {})
        for selector in selectors(document["kind"], spec):
            assert any(selector.items() <= each.items() for each in labels)
        for name in secrets(spec):
            assert ("Secret", name) in resources
        if document["kind"] == "HorizontalPodAutoscaler":
            target = spec["scaleTargetRef"]
            assert "replicas" not in resources[target["kind"], target["name"]]["spec"]


def selectors(kind: str, spec: Document) -> Iterator[dict[str, str]]:
    """Yield the labels of pods that a resource selects."""
    if kind == "Service":
        yield spec["selector"]
    elif kind == "NetworkPolicy":
        yield spec["podSelector"]["matchLabels"]
    elif kind in {"PodDisruptionBudget", "PodMonitor"}:
        yield spec["selector"]["matchLabels"]


def secrets(spec: Document) -> Iterator[str]:
    for volume in spec.get("template", {}).get("spec", {}).get("volumes", ()):
        if "secret" in volume:
            yield volume["secret"]["secretName"]


def test_the_production_overlay_has_every_component() -> None:
    resources = rendered(ROOT / "overlays" / "production")
    kinds = {kind for kind, _ in resources}
    assert kinds >= {
        "Deployment",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PodMonitor",
        "Secret",
        "Service",
    }
    (container,) = pod_template(resources)["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    ports = {each["name"]: str(each["containerPort"]) for each in container["ports"]}
    assert ports["metrics"] == environment["MMHASH_METRICS_PORT"]
    (endpoint,) = resources["PodMonitor", "mmhash"]["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("metrics", "/metrics")
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "settings")
    assert environment["MMHASH_CONFIG"] == mount["mountPath"] + "/settings.toml"
    # A file of a subPath is not updated while the pod runs, so that SIGHUP would have no effect.
    assert "subPath" not in mount


def test_the_secret_is_valid_and_no_key_opens_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = rendered(ROOT / "overlays" / "production")["Secret", "mmhash-settings"]
    file = tmp_path / "settings.toml"
    file.write_bytes(base64.b64decode(secret["data"]["settings.toml"]))
    monkeypatch.setenv("MMHASH_CONFIG", str(file))
    assert Settings().api_key_digests == ("0" * 64,)


def test_a_broken_reference_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "kubernetes"
    shutil.copytree(ROOT, copy)
    (copy / "base" / "service.yaml").unlink()
    with pytest.raises(AssertionError, match=r"service\.yaml"):
        rendered(copy / "overlays" / "small")
