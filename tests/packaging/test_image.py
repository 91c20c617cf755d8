"""The image started as a container would be, from its root file system: `make image` runs this.

deploy/image.sh has mounted that read-only but for /tmp, in a network of its own. What is started in it
is process 1 of a namespace, has the image's user and environment, and no capability.
"""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import mmhash
from tests.support.decoders import wait_for_ready
from tests.support.service import read_all
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("IMAGE_ROOT" not in os.environ, reason="needs an image: make image"),
]

NAVY = Path(__file__).parents[2] / "examples" / "navy.png"
ADDRESS = ("127.0.0.1", 8780)
URL = "http://{}:{}".format(*ADDRESS)


@pytest.fixture(scope="module")
def root() -> str:
    return os.environ["IMAGE_ROOT"]


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return json.loads(Path(os.environ["IMAGE_CONFIG"]).read_bytes())["Docker"]["config"]


# As a body it would be too long.
NEIGHBOUR = """
import mmhash, numpy
item = numpy.arange(1 << 20, dtype=numpy.int32)
with mmhash.Client("http://mmhash", uds="/tmp/mmhash.sock") as client:
    (found,) = client.hash([item])
assert found.key == mmhash.key(item)
"""


def children_of(process: subprocess.Popen[str]) -> list[int]:
    """The child of unshare, which stays outside of the namespace: process 1 in it."""
    if process.poll() is not None:
        return []
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return list(map(int, listed.split()))


class Container:
    def __init__(self, root: str, config: dict[str, Any]) -> None:
        self.check = config["Healthcheck"]["Test"]
        self.start = [*config["Entrypoint"], *config["Cmd"]]
        self.environment = dict(line.split("=", 1) for line in config["Env"])
        self.wrapper = [
            *("unshare", "--pid", "--fork", f"--mount-proc={root}/proc"),
            *("setpriv", "--no-new-privs"),
            *("chroot", f"--userspec={config['User']}", "--groups=", root),
        ]

    @contextmanager
    def running(self, **settings: str) -> Iterator["Running"]:
        with subprocess.Popen(
            [*self.wrapper, *self.start],
            env=self.environment | settings, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            try:
                yield Running(process)
            finally:
                for child in children_of(process):
                    os.kill(child, signal.SIGKILL)

    def run(self, *command: str) -> int:
        return subprocess.run(
            [*self.wrapper, *command], env=self.environment, timeout=60, check=False
        ).returncode

    def is_healthy(self) -> bool:
        kind, *command = self.check
        assert kind == "CMD"
        return self.run(*command) == 0


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self.read_log(until="running on")
        (self.pid,) = children_of(process)

    def read_log(self, until: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(json.loads(line))
            if until in self.log[-1]["message"]:
                return
        raise AssertionError(f"it ended, and did not say {until}: {self.log}")

    def status(self) -> dict[str, str]:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)


@pytest.fixture(scope="module")
def container(root: str, config: dict[str, Any]) -> Container:
    return Container(root, config)


def test_the_service_runs_as_its_own_user_without_a_capability(
    container: Container, config: dict[str, Any]
) -> None:
    with container.running() as running:
        status = running.status()
        user, group = config["User"].split(":")
        assert user != "0"
        assert status["Uid"].split() == [user] * 4
        assert status["Gid"].split() == [group] * 4
        assert status["Groups"] == ""
        assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 0
        assert status["NSpid"].split() == [str(running.pid), "1"]


def test_the_service_is_ready_on_a_read_only_root(container: Container, root: str) -> None:
    with pytest.raises(OSError, match="Read-only file system"):
        Path(root, "written").touch()
    with container.running(), httpx.Client(base_url=URL, timeout=60) as client:
        wait_for_ready(client)
        assert client.get("/ready").json() == {"status": "ok"}


def test_the_health_check_tells_healthy_from_unhealthy(container: Container) -> None:
    assert not container.is_healthy()
    with container.running():
        assert container.is_healthy()


def test_an_image_has_the_librarys_key(container: Container) -> None:
    with container.running():
        headers = {"content-type": "image/png"}
        answer = httpx.post(
            f"{URL}/hash",
            params={"of": "pixels"},
            headers=headers,
            content=NAVY.read_bytes(),
            timeout=60,
        )
    assert answer.status_code == 200
    (item,) = answer.json()["items"]
    with Image.open(NAVY) as image:
        assert item["key"] == mmhash.key(image).hex()


def test_sigterm_under_a_call_ends_it_when_the_call_is_answered(container: Container) -> None:
    with container.running() as running, socket.create_connection(ADDRESS, timeout=60) as caller:
        caller.sendall(
            b"POST /hash HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n"
            b"Content-Length: 6\r\nExpect: 100-continue\r\n\r\n"
        )
        assert caller.recv(1000).startswith(b"HTTP/1.1 100 ")
        caller.sendall(b"abc")
        running.stop()
        running.read_log(until="draining: 1 requests are running")
        assert httpx.get(f"{URL}/ready", timeout=60).status_code == 503
        caller.sendall(b"def")
        answer = read_all(caller)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert mmhash.digest(b"abcdef").hex().encode() in answer
        running.read_log(until="stopped")
        assert running.process.wait(60) == 0


def test_several_processes_answer_on_a_unix_socket_and_end_together(
    container: Container, root: str
) -> None:
    with container.running(MMHASH_UDS="/tmp/mmhash.sock", MMHASH_PROCESSES="2") as running:
        health = "mmhash", "health", "--ready", "unix:/tmp/mmhash.sock"
        wait_until(lambda: container.run(*health) == 0, "it is not ready")
        assert Path(root, "tmp/mmhash.sock").is_socket()
        running.stop()
        running.read_log(until="stopped")
        assert running.process.wait(60) == 0
    assert not list(Path(root, "tmp").glob("mmhash[.-]*"))


def test_a_neighbour_that_sees_other_processes_lends_it_memory(container: Container) -> None:
    settings = {"MMHASH_MAX_BODY_BYTES": str(1 << 20)}
    with container.running(MMHASH_UDS="/tmp/mmhash.sock", **settings):
        assert container.run("python", "-c", NEIGHBOUR) == 0


@pytest.mark.skipif(
    "cuda" not in os.environ.get("IMAGE_EXTRAS", ""), reason="make image EXTRAS=service,cuda"
)
def test_kernels_are_compiled_and_kept_without_a_compiler(container: Container, root: str) -> None:
    assert container.run("python", "-m", "mmhash.cuda.compiler", "90") == 0
    kept = {path.name.split("-")[0] for path in Path(root, "tmp/mmhash").iterdir()}
    assert kept == {path.name for path in Path(mmhash.__file__).parent.glob("cuda/*.cu")}
