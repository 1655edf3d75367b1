"""The fake mode of traces against torch's own: an operator that repeats has the same result from a shorter key."""

import json
import subprocess
import sys

import pytest

TABLE = """
import itertools
import json
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from perfsuite.features.predict.trace import repeats

ROWS = itertools.cycle((0, 2, 1, -1))
STARTS = itertools.cycle((0, 2, 0, 1))
OPERATORS = {
    "mm": lambda a: a @ a,
    "view": lambda a: a.view(-1),
    "transposed": lambda a: a.t(),
    "part": lambda a: a[1:3],
    "part of a part": lambda a: a[1:3][:, 2:],
    "row of a part": lambda a: a[1:][next(ROWS)],
    "part from a row on": lambda a: a[:, 1:].narrow(0, next(STARTS), 2),
    "part from the end": lambda a: a[-2 - next(STARTS) % 2 :],
    "strided": lambda a: a[next(ROWS)].as_strided((2,), (1,)),
    "strided from the first": lambda a: a[next(ROWS)].as_strided((2,), (1,), 0),
    "bits": lambda a: a[next(ROWS)].view(torch.int32),
    "in place": lambda a: a.add_(1),
    "tuple": lambda a: torch.native_layer_norm(a, (4,), None, None, 1e-5),
    "list": lambda a: a.split(2),
    "int": lambda a: a.new_zeros(2, dtype=torch.int64) + 1,
    "float": lambda a: a.new_zeros(2, dtype=torch.int64) + 1.0,
    "bool": lambda a: a.new_zeros(2, dtype=torch.int64) + True,
    "widened": lambda a: a.to(torch.float64),
    "conjugate": lambda a: a.to(torch.complex64).conj(),
    "made": lambda a: torch.full((3,), 2.0),
    "list of tensors": lambda a: torch.cat([a, a[:2]]),
    "on another device": lambda a: a.to("cpu:0"),
}

def facts(one):
    if not isinstance(one, torch.Tensor):
        return [facts(each) for each in one]
    stored = one.untyped_storage().nbytes()
    return [str(one.dtype), list(one.shape), one.stride(), one.storage_offset(), stored, str(one.device), one.is_conj()]

def shares(a, out):
    return out is a, isinstance(out, torch.Tensor) and out.untyped_storage()._cdata == a.untyped_storage()._cdata

def stores(out):
    if isinstance(out, torch.Tensor):
        return {out.untyped_storage()._cdata}
    return set().union(*map(stores, out)) if isinstance(out, (list, tuple)) else set()

def answered(mode):
    found = {}
    with mode:
        for name, operator in OPERATORS.items():
            for default in (torch.float32, torch.float64):
                torch.set_default_dtype(default)
                outs = []
                for _ in range(4):
                    a = torch.empty(4, 4, dtype=torch.float32, device="cpu")
                    outs.append(operator(a))
                own = len(set().union(*map(stores, outs))) - len(stores(outs[-1])) * 4
                found[f"{name}, {default}"] = [facts(outs[-1]), shares(a, outs[-1]), own]
    return found

torch.set_grad_enabled(False)
plain, repeating = FakeTensorMode(), repeats.RepeatingMode()
found = [answered(repeating), answered(plain)][::-1]
refused = []
with repeating:
    for _ in range(4):
        try:
            torch.ones(3).nonzero()
        except Exception as error:
            refused.append(type(error).__name__)
before = repeating.computed
with repeating:
    torch.empty(4, 4, dtype=torch.float32) @ torch.empty(4, 4, dtype=torch.float32)
computed = [repeating.computed - before]
with repeating:
    for width in (4, 4, 4):  # a loop over tokens, as in a scan
        computed.append(repeating.computed)
        a = torch.empty(7, 2, 2 * width)
        for at in range(7):
            part = a[at, :, width:]
            (part * 2 + part.exp()).sum(0)
            torch.ops.aten.select_backward(part, [7, 2, width], 0, at)
    try:
        a[7]
    except IndexError:
        refused.append("IndexError")
computed = [computed[0], *(b - a for a, b in zip(computed[1:], [*computed[2:], repeating.computed]))]
kept = len(repeats._answers)
told = repeats.learned(0)
repeats._answers.clear()
repeats.know(told)
known = repeats.known()
again = answered(repeating) == found[1]
print(json.dumps([*found, refused, kept, [again, known, repeats.known()], computed]))
"""
NAMES = [
    *(
        "mm",
        "view",
        "transposed",
        "part",
        "part of a part",
        "row of a part",
        "part from a row on",
        "part from the end",
        "in place",
        "tuple",
        "list",
        "int",
        "float",
        "bool",
    ),
    *("widened", "conjugate", "made", "list of tensors", "on another device", "strided", "strided from the first"),
    "bits",
]


@pytest.fixture(scope="module")
def compared():
    """By operator: what torch's mode has after four calls, and ours; errors of values; what is kept, and computed."""
    command = [sys.executable, "-W", "ignore", "-c", TABLE]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("default", ["torch.float32", "torch.float64"])
def test_a_repeated_operator_has_the_same_result(compared, name, default):
    """Its shape, strides, dtype, device and storage, whether it is its input or a view of it, and no earlier result."""
    plain, repeating, *_ = compared

    assert repeating[f"{name}, {default}"] == plain[f"{name}, {default}"]


def test_numbers_of_different_types_are_apart(compared):
    """1, 1.0 and True are equal in Python; a sum with 1.0 has another dtype."""
    repeating = compared[1]

    assert repeating["int, torch.float32"][0][0] == "torch.int64"
    assert repeating["float, torch.float32"][0][0] == "torch.float32"
    assert repeating["float, torch.float64"][0][0] == "torch.float64"


def test_what_depends_on_values_is_refused_each_time(compared):
    """No answer to it is kept."""
    assert compared[2] == [*["DynamicOutputShapeException"] * 4, "IndexError"]


def test_a_known_operator_is_not_computed(compared):
    """Neither the two tensors nor their product."""
    *_, kept, _, computed = compared

    assert kept > 10
    assert computed[0] == 0


def test_another_process_knows_what_one_has_learned(compared):
    """It answers all operators as the first one does, and learns none of them again."""
    same, known, afterwards = compared[4]

    assert same
    assert 100 < known == afterwards


def test_a_loop_over_tokens_is_computed_once(compared):
    """An operator on the part of a token is that on any other, and the next loops compute none."""
    first, *later = compared[-1][1:]

    assert 0 < first < 2 * 7  # seven operators on seven tokens; some are made of others
    assert later == [0, 0]
