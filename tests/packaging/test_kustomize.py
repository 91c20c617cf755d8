"""deploy/kubernetes: each overlay, rendered by a real kustomize, is valid and complete."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

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
def test_each_overlay_renders_valid_resources(overlay: Path) -> None:
    resources = rendered(overlay)
    assert resources
    for (kind, _), document in resources.items():
        if kind != "PodMonitor":
            kubernetes_validate.validate(
                document, kubernetes_validate.latest_version(), strict=True
            )
