"""One rank of test_emulation_messages.py: ``emulated_rank.py LIBRARY FUNCTION RANKS RANK …``; prints JSON."""

import ctypes
import json
import os
import sys

FLOAT, INT, BFLOAT16 = 7, 2, 9
SUM, AVERAGE = 0, 4
PATH, NAME, RANKS, RANK = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
ARGUMENTS = [int(text) for text in sys.argv[5:]]
NCCL = ctypes.CDLL(PATH)


class Id(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 128)]


def communicator(device):
    NCCL._ZN8emulated18set_current_deviceEi(device)
    found = ctypes.c_void_p()
    return NCCL.ncclCommInitRank(ctypes.byref(found), RANKS, Id(b"test"), RANK), found


STATUS, ALL = communicator(0 if NAME == "one_device" else RANK)
SIZE = ctypes.c_size_t


def device(numbers, kind=ctypes.c_int):
    """Memory of the device, as an array; what the rank writes into it is marked as written."""
    at = ctypes.c_void_p()
    assert NCCL.ncclMemAlloc(ctypes.byref(at), SIZE(numbers * ctypes.sizeof(kind))) == 0
    return at, (kind * numbers).from_address(at.value)


def written(at, array):
    name = "_ZN8emulated12note_writtenEPKvm"
    getattr(NCCL, name)(at, SIZE(ctypes.sizeof(array)))


def filled(numbers, value):
    at, array = device(numbers)
    for index in range(numbers):
        array[index] = value(index)
    written(at, array)
    return at


def all_reduce(numbers):
    at, (to, out) = filled(numbers, lambda i: (RANK + 1) * (i + 1)), device(numbers)
    assert NCCL.ncclAllReduce(at, to, SIZE(numbers), INT, SUM, ALL, None) == 0
    return [out[0], out[numbers - 1]]


def reduce_scatter(numbers):
    at, (to, out) = filled(numbers * RANKS, lambda i: i), device(numbers)
    assert NCCL.ncclReduceScatter(at, to, SIZE(numbers), INT, SUM, ALL, None) == 0
    return [out[0], out[numbers - 1]]


def all_gather(numbers):
    at, (to, out) = filled(numbers, lambda i: 10 + RANK), device(numbers * RANKS)
    assert NCCL.ncclAllGather(at, to, SIZE(numbers), INT, ALL, None) == 0
    return [out[index] for rank in range(RANKS) for index in (rank * numbers, (rank + 1) * numbers - 1)]


def all_to_all(numbers):
    at, (to, out) = filled(numbers * RANKS, lambda i: 10 * RANK + i // numbers), device(numbers * RANKS)
    assert NCCL.ncclAlltoAll(at, to, SIZE(numbers), INT, ALL, None) == 0
    return [out[rank * numbers] for rank in range(RANKS)]


def broadcast(numbers):
    at = filled(numbers, lambda i: RANK)
    assert NCCL.ncclBroadcast(at, at, SIZE(numbers), INT, 2, ALL, None) == 0
    out = (ctypes.c_int * numbers).from_address(at.value)
    return [out[0], out[numbers - 1]]


def zeros(numbers):
    (at, _), to = device(numbers), filled(numbers, lambda i: 5)
    assert NCCL.ncclAllReduce(at, to, SIZE(numbers), INT, SUM, ALL, None) == 0
    out = (ctypes.c_int * numbers).from_address(to.value)
    return [out[0], out[numbers - 1]]


def ring(numbers):
    sent = [filled(numbers, lambda i, base=100 * RANK + one: base) for one in range(10)]
    for at in sent:
        assert NCCL.ncclSend(at, SIZE(numbers), INT, 1 - RANK, ALL, None) == 0
    found = []
    for _ in sent:
        to, out = device(numbers)
        assert NCCL.ncclRecv(to, SIZE(numbers), INT, 1 - RANK, ALL, None) == 0
        assert out[0] == out[numbers - 1]
        found.append(out[0])
    return found


def split():
    part, rank, size = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    assert NCCL.ncclCommSplit(ALL, RANK % 2, -RANK, ctypes.byref(part), None) == 0
    NCCL.ncclCommUserRank(part, ctypes.byref(rank))
    NCCL.ncclCommCount(part, ctypes.byref(size))
    at, (to, out) = filled(1, lambda i: RANK), device(1)
    assert NCCL.ncclAllReduce(at, to, SIZE(1), INT, SUM, part, None) == 0
    return [rank.value, size.value, out[0]]


def one_device():
    NCCL.ncclGetLastError.restype = ctypes.c_char_p
    return [STATUS, NCCL.ncclGetLastError(ALL).decode()]


def average():
    at, array = device(1, ctypes.c_uint16)
    array[0] = (0x3F80, 0x4000)[RANK]  # 1.0 and 2.0
    written(at, array)
    assert NCCL.ncclAllReduce(at, at, SIZE(1), BFLOAT16, AVERAGE, ALL, None) == 0
    return [{0x3FC0: 1.5}.get(array[0], array[0])]


print(json.dumps(globals()[NAME](*ARGUMENTS)), flush=True)
NCCL._exit(0) if NAME == "all_reduce" else os._exit(0)
