"""Whether the ranks of a script have equal weights at its end, and the norm of its weights in warm-up steps.

DDP keeps replicas equal, so a parameter of its module that differs between ranks is wrong. Everything else may differ,
such as a shard or the buffers of BatchNorm, but equally many must. A weight that rank 1 alone has moved changes the
gradients of both ranks alike, and is in no loss of rank 0. Replicas that were equal may part in later steps.

The norms say which training it is. A weight decay that is left out, and buffers that are no longer sent, are less work,
and change the losses of a few steps by less than two orders of summation may.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.meters._growth import is_asked_at
from perfsuite.rank.everywhere import everywhere
from perfsuite.rank.meter import Meter
from perfsuite.rank.norms import elements_of, local, norm_of, stored, unwrapped
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.digests import joined
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import fold
from perfsuite.system.units import NUMBER, WHOLE

KINDS = ("parameters", "buffers")


class Replicas(Meter):
    """Reads norms after warm-up steps, which are neither recorded nor timed, and digests at the end."""

    processes = ("script",)
    trainer: Any  # a script's

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.norms: dict[str, list[float | None]] = {kind: [] for kind in KINDS}
        self.replicated: set[str] = set()  # parameters that DDP keeps equal
        self.digests: list[str] = []  # of these, before the later steps and after their blocks

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        if kind != StepKind.WARMUP or self.session.emulated:
            return
        roots = list(self.trainer.watched.roots.values())
        for name, tensors in (("parameters", _parameters(roots)), ("buffers", _buffers(roots))):
            self.norms[name].append(_norm(tensor for _, tensor in tensors))

    def readings(self) -> dict[str, Reading]:
        readings = {}
        for kind, norms in self.norms.items():
            known = [norm for norm in norms if norm is not None]
            if known and all(map(math.isfinite, known)):
                readings[f"{kind}_norm"] = Reading(value=known[-1], samples=norms)
        if self.session.world_size > 1 and not self.session.emulated:
            readings |= self._compared()
        return readings

    def later(self, step: int, outcome: StepOutcome, seconds: float) -> None:
        if self.replicated and is_asked_at(step):
            roots = list(self.trainer.watched.roots.values())
            weights = (tensor for name, tensor in _parameters(roots) if name in self.replicated)
            self.digests.append(joined([_digest(tensor) for tensor in weights]))

    def later_readings(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        digests = {"replicas": list(self.digests)}
        return {"parted_replicas": Reading(value=0, digests=digests)} if self.replicated else {}

    def _compared(self) -> dict[str, Reading]:
        """What differs between ranks. The names are those in their module, which all ranks have."""
        roots = list(self.trainer.watched.roots.values())
        named = {"parameters": _parameters(roots), "buffers": _buffers(roots)}
        mine = {(kind, name): _digest(tensor) for kind, tensors in named.items() for name, tensor in tensors}
        self.replicated = set(_of_ddp(roots))
        differing: Counter[str] = Counter()
        drifted: dict[str, int] = {}
        for kind, name in _differing(everywhere(mine)):
            differing[kind] += 1
            if kind == "parameters" and name in self.replicated:
                drifted[f"{kind}: {name}"] = 1
        readings = {"differing_tensors": Reading(value=differing.total(), parts=dict(differing))}
        if self.replicated:
            readings["parted_replicas"] = Reading(value=0)
            parts = {"parameters": len(drifted)} if drifted else {}
            readings["drifted_replicas"] = Reading(value=len(drifted), parts=parts, suspects=fold(drifted))
        return readings


def _differing(ranks: Iterable[Mapping[tuple[str, str], str]]) -> list[tuple[str, str]]:
    """The tensors that several ranks have, and not equally."""
    digests: dict[tuple[str, str], set[str]] = {}
    for rank in ranks:
        for name, digest in rank.items():
            digests.setdefault(name, set()).add(digest)
    return sorted(name for name, different in digests.items() if len(different) > 1)


def _parameters(roots: Iterable[Module]) -> Iterator[tuple[str, Tensor]]:
    for root in roots:
        for name, parameter in root.named_parameters():
            tensor = next(stored(unwrapped(parameter)))
            if not tensor.is_meta:  # a layer whose output's shape was asked for
                yield f"{type(root).__name__}.{name}", tensor


def _buffers(roots: Iterable[Module]) -> Iterator[tuple[str, Tensor]]:
    for root in roots:
        for name, buffer in root.named_buffers():
            if buffer.is_floating_point() and not buffer.is_meta:
                yield f"{type(root).__name__}.{name}", local(unwrapped(buffer))


def _of_ddp(roots: Iterable[Module]) -> Iterator[str]:
    """The names of the parameters that DDP keeps equal on all ranks of its group."""
    from torch.nn.parallel import DistributedDataParallel

    for root in roots:
        for path, module in root.named_modules():
            if isinstance(module, DistributedDataParallel):
                own = {name for name, _ in module.named_parameters()}
                own -= {f"module.{name}" for name in module.parameters_to_ignore}
                yield from (".".join(filter(None, (type(root).__name__, path, name))) for name in own)


def _norm(tensors: Iterable[Tensor]) -> float | None:
    """The 2-norm of all of them; None of none."""
    import torch

    with torch.no_grad():
        norms = [norm_of(tensor) for tensor in tensors]
    return math.hypot(*norms) if norms else None


def _digest(tensor: Tensor) -> str:
    import torch

    plain = elements_of(tensor.detach()).cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(plain.numpy().tobytes(), digest_size=8).hexdigest()


METER = Replicas
METRICS = (
    *(
        Metric(
            f"{kind}_norm", f"norm of the {kind}", NUMBER, fold="mean", hold="close", worse="different", optional=True
        )
        for kind in KINDS
    ),
    Metric("drifted_replicas", "replicas that drifted apart", WHOLE, hold="zero", optional=True),
    Metric("parted_replicas", "replicas that parted later", WHOLE, fold="parted", hold="zero", optional=True),
    Metric("differing_tensors", "tensors that differ between ranks", WHOLE, hold="exact", optional=True),
)
