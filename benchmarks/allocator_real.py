"""Compares perfsuite's model of CUDA's caching allocator with the real one, request by request. Needs no GPU.

    python benchmarks/allocator_real.py FOLDER    # docs/data/memory/allocator.csv, tests/data/allocator/*.json

FOLDER keeps what is downloaded and built. torch's wheel for CUDA contains the compiled allocator in libc10_cuda.so,
which needs libc10.so and NVIDIA's libcudart. The latter is replaced by benchmarks/allocator/cudart.cpp, a device that
has only a capacity; benchmarks/allocator/driver.cpp sends requests to the allocator and prints its answers.
Needs g++, nm and pip.
"""

import contextlib
import hashlib
import os
import random
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from result_tables import write_table

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.allocator import CachingAllocator, OutOfMemory, smallest_capacity
from perfsuite.features.predict.trace.tracing import job_of, trace
from perfsuite.features.predict.trace_records import Trace
from perfsuite.records.codec import write_bytes

HERE = Path(__file__).parent
DATA = HERE.parent / "tests" / "data" / "allocator"
TORCH = "2.13.0"
WHEELS = (f"torch=={TORCH}", "nvidia-cuda-runtime==13.0.*", "nvidia-cuda-crt==13.0.*")
CELLS = (
    "gpt2_small-single+bf16-rtx3090_x1",
    "t5_large-single+bf16-rtx3090_x1-b8",
    "t5_base-single+fp16+adafactor+ckpt-v100_32g_x1-b8",
    "bloom_7b1-single+bf16-a100_80g_x1",
    "t5_large-zero3+bf16-rtx3090_x2-b8",
    "llama_1b-ddp+bf16-a100_80g_x2",
    "llama_8b-fsdp2+bf16+adamw_fused+ckpt-h100_x8",
)
KEPT_CELL = "gpt2_small-single+bf16-rtx3090_x1"
KEPT_RANDOM = 4
RANDOM = 200
REQUESTS = 400
MIB = 2**20
COLUMNS = ("requests", "how many", "streams", "device", "most reserved", "out of memory", "answers that differ")
Answer = tuple[int, int, int, int] | None  # address, allocated, reserved, segments; None: out of memory


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Requests as (number, bytes, stream), bytes < 0 to free; at ``begin`` a device of that capacity (0: any)."""

    name: str
    orders: Sequence[tuple[int, int, int]]
    begin: int = 0
    capacity: int = 0


def random_requests(seed: int) -> Requests:
    """Sizes around every threshold of the allocator, on up to three streams, on a device that may be too small."""
    source = random.Random(seed)
    sizes = (512, 4096, MIB, MIB + 1, 2 * MIB, 10 * MIB, 10 * MIB - 512, 20 * MIB, 100 * MIB)
    streams = source.choice((1, 1, 2, 3))
    live: list[int] = []
    orders = []
    for number in range(1, REQUESTS + 1):
        if live and source.random() < source.choice((0.3, 0.5, 0.7)):
            orders.append((live.pop(source.randrange(len(live))), -1, 0))
            continue
        size = source.choice(sizes)
        size = source.choice((size, size + source.randrange(-511, 512), source.randrange(1, size)))
        orders.append((number, max(1, size), source.randrange(streams)))
        live.append(number)
    capacity = source.choice((0, 256 * MIB, 1024 * MIB))
    return Requests(name=f"random {seed}", orders=orders, begin=source.randrange(REQUESTS // 2), capacity=capacity)


def traced_requests(name: str) -> Iterator[Requests]:
    """Two steps of a cell: on a device that is large enough, on the smallest that is, and on one that is too small."""
    catalog = Catalog()
    (one,) = trace([job_of(parse_cell(name, catalog), 0, catalog)])
    assert isinstance(one, Trace), one
    first = next(at for at, event in enumerate(one.events) if event[0] == -1 and one.marks[event[1]].phase == "batch")
    kept = [(at, event) for at, event in enumerate(one.events) if event[0] != -1 and event[1]]
    orders = [(storage, size, stream) for _, (storage, size, _, stream) in kept]
    begin = sum(at < first for at, _ in kept)
    smallest = smallest_capacity([(number, size, 0, stream) for number, size, stream in orders], begin)
    for capacity in (0, smallest, smallest * 9 // 10):
        yield Requests(name=name, orders=orders, begin=begin, capacity=capacity)


def ours(requests: Requests) -> Iterator[Answer]:
    """The model's answer to each request. At request ``begin`` the cache is emptied and the device gets its capacity,
    which is answered too.
    """
    allocator, blocks = CachingAllocator(), {}
    for at, (number, size, stream) in enumerate(requests.orders):
        if at == requests.begin:
            with contextlib.suppress(OutOfMemory):  # the real allocator reports it only at the next request
                allocator.begin(requests.capacity or None)
            yield 0, allocator.allocated, allocator.reserved, allocator.segments
        address = 0
        if size > 0:
            try:
                blocks[number] = allocator.allocate(size, stream)
            except OutOfMemory:
                yield None
                continue
            address = blocks[number].address
        elif number in blocks:
            allocator.release(blocks.pop(number))
        yield address, allocator.allocated, allocator.reserved, allocator.segments


def real(requests: Requests, driver: Path) -> list[Answer]:
    """The answers of torch's allocator."""
    lines = []
    for at, (number, size, stream) in enumerate(requests.orders):
        if at == requests.begin:
            lines.append(f"b {requests.capacity}")
        lines.append(f"a {number} {size} {stream}" if size > 0 else f"f {number}")
    done = subprocess.run([driver], input="\n".join(lines), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{driver} ended with {done.returncode}: {done.stderr[-500:]}")
    return [_answer(line) for line in done.stdout.splitlines()]


def _answer(line: str) -> Answer:
    if line == "oom":
        return None
    address, allocated, reserved, segments = map(int, line.split())
    return address, allocated, reserved, segments


def keep(requests: Requests, answers: Sequence[Answer]) -> None:
    """Write a recording for the tests: the requests, where memory ran out, and the real allocator's answers.

    Addresses are kept as a hash of all, the bytes wherever what is reserved changes.
    """
    changes: list[tuple[int, int, int, int]] = []
    for at, answer in enumerate(answers):
        if answer and (not changes or answer[2] != changes[-1][2]):
            changes.append((at, *answer[1:]))
    recording = {
        "made": f"by benchmarks/allocator_real.py with libc10_cuda.so of torch {TORCH} for CUDA",
        "name": requests.name,
        "begin": requests.begin,
        "capacity": requests.capacity,
        "orders": [one for order in requests.orders for one in order],
        "out_of_memory": [at for at, answer in enumerate(answers) if answer is None],
        "addresses": digest(answers),
        "reserved": [number for change in changes for number in change],
        "last": answers[-1],
    }
    name = re.sub(r"\W+", "_", requests.name)
    write_bytes(DATA / f"{name}.json", msgspec.json.encode(recording) + b"\n")


def digest(answers: Sequence[Answer]) -> str:
    """A hash of all addresses."""
    return hashlib.sha256(" ".join(str(one[0]) if one else "oom" for one in answers).encode()).hexdigest()


def build(folder: Path) -> Path:
    """Download, unpack, compile. Returns the driver."""
    wheels = folder / "wheels"
    if not wheels.is_dir():
        environment = os.environ | {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}  # no +cpu in place of CUDA's
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(wheels), *WHEELS]
        subprocess.run(command, env=environment, check=True)
    wanted = re.compile(r"torch/lib/libc10(_cuda)?\.so|torch/include/(c10|torch/headeronly)/.*|nvidia/cu13/include/.*")
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if wanted.fullmatch(name)])
    library = folder / "torch" / "lib" / "libc10_cuda.so"
    symbols = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"U (cuda\w+)", symbols))
    known = set(re.findall(r"^\S.*?(cuda\w+)\(", (HERE / "allocator" / "cudart.cpp").read_text(), re.M))
    stubs = "".join(f'int {name}() {{ unknown("{name}"); }}\n' for name in sorted(needed - known))
    (folder / "stubs.cpp").write_text(f'extern "C" {{\n[[noreturn]] void unknown(const char*);\n{stubs}}}\n')
    (folder / "versions").write_text("libcudart.so.13 { global: *; };\n")
    runtime, driver = folder / "libcudart.so.13", folder / "driver"
    shared = [
        "g++",
        "-shared",
        "-fPIC",
        "-O1",
        "-Wl,-soname,libcudart.so.13",
        f"-Wl,--version-script={folder}/versions",
    ]
    sources = [HERE / "allocator" / "cudart.cpp", folder / "stubs.cpp"]
    includes = [f"-I{folder}/torch/include", f"-I{folder}/nvidia/cu13/include"]
    subprocess.run([*shared, *includes, *sources, "-o", runtime], check=True)
    paths = [f"-Wl,-rpath,{folder}", f"-Wl,-rpath,{folder}/torch/lib", "-Wl,--allow-shlib-undefined"]
    libraries = [library, folder / "torch" / "lib" / "libc10.so", runtime]
    source = HERE / "allocator" / "driver.cpp"
    subprocess.run(["g++", "-O2", "-std=c++20", *includes, source, *libraries, *paths, "-o", driver], check=True)
    return driver


def row(requests: Requests, answers: Sequence[Answer]) -> tuple[tuple[object, ...], int]:
    """A row of the table, and how many of the answers differ from the model's."""
    mine = list(ours(requests))
    assert len(mine) == len(answers), f"{requests.name}: {len(answers)} answers to {len(mine)} requests"
    other = sum(one != two for one, two in zip(mine, answers, strict=True))
    streams = len({stream for _, size, stream in requests.orders if size > 0})
    peak = max(answer[2] for answer in answers if answer)
    refused = sum(answer is None for answer in answers)
    device = f"{requests.capacity / MIB:,.0f} MiB" if requests.capacity else "any"
    cells = (requests.name, f"{len(requests.orders):,}", streams, device, f"{peak / MIB:,.0f} MiB", refused, other)
    return cells, other


def main() -> int:
    """Compare, and keep some of the real allocator's answers for the tests."""
    driver = build(Path(sys.argv[1]).resolve())
    lines: list[tuple[object, ...]] = []
    wrong, asked, refused = 0, 0, 0
    for seed in range(RANDOM):
        requests = random_requests(seed)
        answers = real(requests, driver)
        wrong += row(requests, answers)[1]
        asked += len(answers)
        refused += sum(answer is None for answer in answers)
        if seed < KEPT_RANDOM:
            keep(requests, answers)
    lines.append((f"{RANDOM} random sequences", f"{asked:,}", "1 to 3", "any, 256, 1,024 MiB", "", refused, wrong))
    print(*lines[-1], flush=True)
    for name in CELLS:
        for requests in traced_requests(name):
            answers = real(requests, driver)
            cells, other = row(requests, answers)
            wrong += other
            lines.append(cells)
            print(*cells, flush=True)
            if name == KEPT_CELL and not requests.capacity:
                keep(requests, answers)
    write_table("memory/allocator", COLUMNS, lines)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
