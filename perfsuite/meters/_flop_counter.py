"""FLOPs of what a rank's operators compute, by torch's counter."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from perfsuite.meters._formulas import formulas
from perfsuite.rank.forked import reason_of
from perfsuite.rank.meter import on_dtensors

TORCHS = ("aten", "prims")
MOVING = (  # operators that only move tensors, such as FSDP's copies
    *("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "fsdp", "symm_mem"),
    *("deepspeed", "inductor", "prim", "profiler", "streams"),
)
HEAVY = (  # how parts of their names begin: products, convolutions, transforms, recurrences, scans, decompositions
    *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot", "addr", "bilinear", "trilinear", "cdist", "pdist"),
    *("conv", "fft", "attention", "transformer", "rnn", "lstm", "gru", "ctc", "grid", "scan"),
    *("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "linalg", "cholesky", "triangular", "ormqr", "geqrf"),
)


def flop_counter(recomputing: Callable[[], bool] = bool, phase: Callable[[], str] = str) -> Any:
    """torch's counter, for this rank's work: for a DTensor it would count the work of all ranks. What it does not know
    has a formula in _formulas.py, or is in ``unknown``, unless an optimizer calls it: no count has an optimizer's
    arithmetic. A formula that fails does not end the step: ``why_not`` says it.
    """
    from torch.utils.flop_counter import FlopCounterMode

    class Everything(contextlib.nullcontext[None]):
        """Torch's tracker of modules hooks their inputs, which autograd.grad refuses for a leaf."""

        parents = frozenset({"Global"})

    class CountingFlops(FlopCounterMode):
        why_not = ""
        recomputed = 0
        unknown: Counter[str]

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.mod_tracker: Any = Everything()
            self.unknown = Counter()
            self.flop_registry = {name: self._safe(name, formula) for name, formula in self.flop_registry.items()}

        def _safe(self, operator: Any, formula: Any) -> Any:
            def count(*args: Any, **kwargs: Any) -> int:
                if phase() == "optimizer":
                    return 0
                try:
                    flop = int(formula(*args, **kwargs) * density(args))
                    self.recomputed += flop if recomputing() else 0
                    return flop
                except Exception as error:
                    self.why_not = self.why_not or f"the formula for {operator} fails: {reason_of(error)}"
                    return 0

            return count

        def __enter__(self) -> Any:
            super().__enter__()  # type: ignore[no-untyped-call]
            mode: Any = type(self.mode)
            known, unknown = self.flop_registry, self.unknown

            class Local(mode):  # type: ignore[misc]
                def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                    if on_dtensors(types):
                        return NotImplemented
                    out = super().__torch_dispatch__(function, types, args, kwargs)
                    if function.overloadpacket not in known and phase() != "optimizer" and computes(function, out):
                        unknown[f"{function.namespace}::{function.overloadpacket.__name__}"] += 1
                    return out

            self.mode.__class__ = Local
            return self

    return CountingFlops(display=False, custom_mapping=formulas())


def hole(unknown: Iterable[str]) -> str:
    """Why a number that needs all FLOPs cannot be told."""
    return f"the FLOPs of {', '.join(sorted(unknown))} are not known"


def density(inputs: Iterable[Any]) -> float:
    """The share of a product that its sparse tensors leave: formulas know shapes alone."""
    import torch

    shares = []
    for one in inputs:
        if isinstance(one, torch.Tensor) and one.layout != torch.strided and one.numel():
            values = one._values() if one.layout == torch.sparse_coo else one.values()
            shares.append(values.numel() / one.numel())
    return math.prod(shares)


def computes(function: Any, out: Any) -> bool:
    """Whether an operator on floats computes more than a number for each number: one of another package, or one of
    torch's of these kinds. One that consists of others is not asked for, but they are.
    """
    import torch

    leaves = out if isinstance(out, tuple | list) else [out]
    if not any(isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()) for leaf in leaves):
        return False
    if function.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return False
    if function.namespace not in TORCHS:
        return function.namespace not in MOVING
    parts = function.overloadpacket.__name__.split("_")
    return "norm" not in parts and any(part.startswith(HEAVY) for part in parts)
