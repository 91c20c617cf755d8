"""Features behind IpcTensor: two processes on one GPU, and on two."""

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash.transport import (
    FeaturePool,
    IpcTensor,
    remove_orphans,
)

pytestmark = pytest.mark.gpu

NOISE = torch.from_numpy(np.random.default_rng(7).integers(0, 256, 96 << 20, dtype=np.uint8))
MIB = 1 << 20

# A consumer in a process of its own: a line of JSON in, a line out.
CONSUMER = """
import json, sys
import torch, mmhash
from mmhash.transport import IpcTensor, SharedTensor
from mmhash.transport import ipc_driver
torch.cuda.set_device(int(sys.argv[1]))
kept = []
opened = []
open_memory = ipc_driver.open_memory
ipc_driver.open_memory = lambda *memory: opened.append(memory) or open_memory(*memory)

def feature(handle, **options):
    kind = IpcTensor if handle["transport"] == "cuda_ipc" else SharedTensor
    return kind.open(handle, **options)

def keys(handle, counts=None, **options):
    with feature(handle, **options) as whole:
        parts = mmhash.split(whole, counts=counts) if counts else [whole]
        return [str(key) for key in mmhash.keys(parts)]

def keys_and_pads(handle, counts):
    with feature(handle) as whole:
        found = mmhash.keys(mmhash.split(whole, counts=counts))
    return [[str(key), mmhash.pad_values(key, engine="sglang")] for key in found]

def peak(handle, counts):
    "What keys() of the parts adds to torch's peak, and how many mappings it opens."
    torch.cuda.synchronize(); torch.cuda.reset_peak_memory_stats()
    before, count = torch.cuda.max_memory_allocated(), len(opened)
    keys(handle, counts)
    return [torch.cuda.max_memory_allocated() - before, len(opened) - count]

def read_on(handle, device):
    from mmhash.view import view_of
    with feature(handle, device=device) as whole:
        return [view_of(whole).data.device, str(mmhash.key(whole))]

def hold(handle):
    kept.append(feature(handle))
    return [str(mmhash.key(kept[-1]))]

def again():
    return [str(mmhash.key(kept[-1]))]

def reconstruct(handle):
    with feature(handle) as whole:
        made = whole.reconstruct()
    return [str(made.device), str(mmhash.key(made.cpu()))]

def start():
    torch.zeros(1, device="cuda"); mmhash.key(torch.ones(5, device="cuda"))
    return None

def active(device):
    "Whether this process has made the device's primary context."
    import ctypes
    flags, state = ctypes.c_uint(), ctypes.c_int()
    assert not ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(state))
    return state.value

for line in sys.stdin:
    name, *arguments = json.loads(line)
    try:
        result = [True, globals()[name](*arguments)]
    except Exception as error:
        result = [False, f"{type(error).__name__}: {error}"]
    print(json.dumps(result), flush=True)
"""

# A producer in a process of its own, to be killed.
PRODUCER = """
import json, sys, torch, mmhash
from mmhash.transport import FeaturePool
pool = FeaturePool(0, nbytes=64 << 20)
values = torch.arange(1 << 22, dtype=torch.int32, device="cuda")
leased = [pool.lease(values), pool.lease(values + 1)]
print(json.dumps([[one.handle() for one in leased], str(mmhash.key(values)), str(mmhash.key(values + 1))]), flush=True)
sys.stdin.read()
"""


class Consumer:
    def __init__(self, device: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONSUMER, str(device)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def ask(self, *what: Any) -> Any:
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        worked, result = json.loads(self.process.stdout.readline())
        if not worked:
            raise RuntimeError(result)
        return result

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def consumer() -> Iterator[Consumer]:
    made = Consumer()
    yield made
    made.end()


@pytest.fixture
def make_pool() -> Iterator[Callable[..., FeaturePool]]:
    made = []

    def make(mib: int = 128, **options: Any) -> FeaturePool:
        made.append(FeaturePool(0, nbytes=mib << 20, **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def texts(keys: list[mmhash.Digest]) -> list[str]:
    return [str(key) for key in keys]


def test_the_copy_follows_the_stream(consumer: Consumer, make_pool: Any) -> None:
    pool = make_pool()
    values = NOISE[: 8 * MIB].cuda()
    expected = texts([mmhash.key(NOISE[: 8 * MIB])])
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        late = torch.zeros_like(values)
        torch.cuda._sleep(200_000_000)  # about 0.1 s
        late.copy_(values)
        leased = pool.lease(late)
        assert not torch.cuda.current_stream().query()  # nothing was waited for
        del late
    assert consumer.ask("keys", leased.handle()) == expected


def test_64_items_behind_one_handle(make_pool: Any) -> None:
    consumer = Consumer()
    pool = make_pool()
    bundle = NOISE.view(torch.bfloat16).reshape(64 * 768, 1024)[: 64 * 512]
    counts = [512] * 64
    leased = pool.lease(bundle.cuda())
    local = texts(mmhash.keys(mmhash.split(bundle, counts=counts)))
    consumer.ask("start")
    assert consumer.ask("peak", leased.handle(), counts) == [0, 1]
    leased = pool.lease(bundle.cuda())
    assert consumer.ask("peak", leased.handle(), counts) == [0, 0]
    leased = pool.lease(bundle.cuda())
    assert consumer.ask("keys", leased.handle(), counts) == local
    assert texts(mmhash.keys(mmhash.split(pool.lease(bundle.cuda()), counts=counts))) == local
    consumer.end()


def test_reconstruct_and_borrow(consumer: Consumer, make_pool: Any) -> None:
    pool = make_pool(timeout_s=600)
    values = NOISE[: 6 * MIB].view(torch.bfloat16).reshape(3, 1024, 1024).cuda()
    leased = pool.lease(values)
    device, key = consumer.ask("reconstruct", leased[1:].handle())
    assert (device, key) == ("cuda:0", str(mmhash.key(values[1:])))
    whole = pool.lease(values)
    with whole.borrow() as seen:
        assert seen.shape == values.shape
        assert torch.equal(seen.view(torch.int16), values.view(torch.int16))
    assert torch.equal(
        whole[2:].reconstruct("cpu").view(torch.int16), values[2:].cpu().view(torch.int16)
    )


def test_400_bundles_between_two_processes() -> None:
    """Producers and consumers on each GPU that there is."""
    devices = range(min(2, torch.cuda.device_count()))
    consumers = [Consumer(device) for device in devices]
    pools = [FeaturePool(device, nbytes=64 * MIB) for device in devices]
    random = np.random.default_rng(41)
    dtypes = [torch.uint8, torch.bfloat16, torch.float32]
    for number in range(400):
        counts = random.integers(1, 60, random.integers(1, 40)).tolist()
        row = int(random.integers(1, 400)) * 4
        bundle = NOISE[number : number + sum(counts) * row].clone().view(dtypes[number % 3])
        bundle = bundle.reshape(sum(counts), -1)
        expected = [
            [str(key), mmhash.pad_values(key, engine="sglang")]
            for key in mmhash.keys(mmhash.split(bundle, counts=counts))
        ]
        pool, consumer = pools[number % len(pools)], consumers[number // 2 % len(consumers)]
        with torch.cuda.device(pool.device):
            handle = pool.lease(bundle.cuda()).handle()
        assert handle["transport"] == "cuda_ipc"
        assert consumer.ask("keys_and_pads", handle, counts) == expected
    for consumer in consumers:
        consumer.end()
    for pool in pools:
        pool.close()


def test_a_pool_that_is_full_refuses_until_a_slice_is_free(
    consumer: Consumer, make_pool: Any
) -> None:
    pool = make_pool(4)
    values = NOISE[: 3 * MIB].cuda()
    first = pool.lease(values)
    with pytest.raises(mmhash.TransportError, match="has no slice"):
        pool.lease(values)
    assert consumer.ask("keys", first.handle()) == [str(mmhash.key(values))]
    assert isinstance(pool.lease(values), IpcTensor)  # which takes back what was acknowledged


def test_a_producer_killed_while_it_is_read() -> None:
    producer = subprocess.Popen(
        [sys.executable, "-c", PRODUCER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    handles, key, second_key = json.loads(producer.stdout.readline())
    consumer = Consumer()
    assert consumer.ask("hold", handles[0]) == [key]
    producer.kill()
    producer.wait()
    producer.stdin.close()
    producer.stdout.close()
    # What is mapped stays; its neighbour in the same mapping was copied and is whole.
    assert consumer.ask("again") == [key]
    assert consumer.ask("keys", handles[1]) == [second_key]
    late = Consumer()
    with pytest.raises(RuntimeError, match="TransportError"):
        late.ask("keys", handles[0])
    assert handles[0]["lease"]["name"] in remove_orphans()
    with pytest.raises(RuntimeError, match=r"TransportError: segment .* is gone"):
        late.ask("keys", handles[1] | {"lease": handles[1]["lease"] | {"slot": 0}})
    consumer.end()
    late.end()


@pytest.mark.alone
def test_ten_thousand_leases_leave_nothing(make_pool: Any) -> None:
    pool = make_pool(4)
    values = NOISE[: MIB // 4].cuda()
    IpcTensor.open(pool.lease(values).handle()).close()
    torch.cuda.synchronize()
    gc.collect()
    free, files = torch.cuda.mem_get_info()[0], len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10_000):
        IpcTensor.open(pool.lease(values).handle()).close()
        if pool._ledger.leases() > 12:
            torch.cuda.current_stream().synchronize()
    torch.cuda.synchronize()
    assert pool._ledger.leases() == 0
    assert torch.cuda.mem_get_info()[0] == free
    assert len(list(Path("/proc/self/fd").iterdir())) == files


two_gpus = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="needs two GPUs"
)


@two_gpus
def test_a_consumer_reads_on_the_device_it_names(consumer: Consumer) -> None:
    pool = FeaturePool(1, nbytes=4 * MIB)
    values = NOISE[:MIB].to("cuda:1")
    key = str(mmhash.key(values))
    for device, expected in ((None, 0), (0, 0), (1, 1), ("producer", 1)):
        handle = pool.lease(values).handle()
        assert consumer.ask("read_on", handle, device) == [expected, key]
    pool.close()


def memory_on_first() -> dict[str, str]:
    """MiB on GPU 0 by process, as the driver says."""
    result = subprocess.check_output(
        ["nvidia-smi", "-i", "0", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"],
        text=True,
    )
    return dict(line.split(", ") for line in result.splitlines() if ", " in line)


@pytest.mark.alone
@two_gpus
def test_a_consumer_on_another_gpu_has_no_context_on_the_producers(make_pool: Any) -> None:
    pool = make_pool()
    values = NOISE[: 20 * MIB].view(torch.bfloat16).reshape(10, -1).cuda(0)
    key, parts = str(mmhash.key(values)), texts(mmhash.keys([values[:4], values[4:]]))
    consumer = Consumer(1)
    consumer.ask("start")
    pool.lease(values)
    torch.cuda.synchronize()
    used, free = memory_on_first(), torch.cuda.mem_get_info(0)[0]
    assert consumer.ask("active", 0) == 0
    assert consumer.ask("keys", pool.lease(values).handle(), [4, 6]) == parts
    assert consumer.ask("reconstruct", pool.lease(values).handle()) == ["cuda:1", key]
    assert consumer.ask("hold", pool.lease(values).handle()) == [key]
    after, free_after = memory_on_first(), torch.cuda.mem_get_info(0)[0]
    print(f"\nGPU 0 by process before {used} after {after}; the consumer is {consumer.process.pid}")
    print(f"GPU 0 free before {free / MIB:.1f} MiB, after {free_after / MIB:.1f} MiB")
    assert consumer.ask("active", 0) == 0
    assert consumer.ask("active", 1) == 1
    assert str(consumer.process.pid) not in after
    assert free_after == free
    assert sum(int(text.split()[0]) for text in after.values() if text[0].isdigit()) == sum(
        int(text.split()[0]) for text in used.values() if text[0].isdigit()
    )
    consumer.end()
