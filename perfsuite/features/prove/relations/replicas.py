"""replicas: what ought to be equal on all ranks is equal after each step: parameters, buffers and optimizer state.

DistributedDataParallel and DeepSpeed below ZeRO-3 keep all parameters equal. Without them, a model that begins equal on
all ranks must stay so. Shards are not compared.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relation import CannotTry, Judged, Relation, Remark, Seen, by_own_run, grouped
from perfsuite.features.prove.relations._statistics import WHOLE, sent_anew
from perfsuite.rank.norms import local, shards_of
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.probes import Probe, ProvedScript, digest
from perfsuite.rank.torch_types import Module
from perfsuite.records.record import Record

COMPARED = 8  # steps, and the last one
NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")  # whose running statistics a rank has of its own
SHARDED_FROM = 3  # the stage of ZeRO whose parameters are shards


class Replica(Record, frozen=True, kw_only=True):
    """One rank: digests by name, before the first step (number 0) and after some. ``keeps`` says what keeps parameters
    equal, empty if nothing was seen to. ``apart`` are names that may differ: shards and running statistics.
    ``gradients`` are digests of the gradients with which a step ends, before they are clipped.
    """

    keeps: str
    digests: dict[int, dict[str, str]]
    gradients: dict[int, dict[str, str]]
    state: dict[str, str]
    apart: list[str]
    line: str


class ReplicaProbe(Probe):
    """Reads the digests."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.digests: dict[int, dict[str, str]] = {}
        self.gradients: dict[int, dict[str, str]] = {}
        self.keeps = self.line = ""
        self.apart: set[str] = set()
        self._first: dict[str, str] = {}

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """Look once for what keeps ranks equal."""
        result = call()
        if not self._first and model.training:
            self._first = {name: digest(parameter) for name, parameter in model.named_parameters()}
            self.line = self.script.line()
        return result

    def before_backward(self) -> None:
        """The first one sees the parameters before any update."""
        if not self.digests and self.script.models():
            self.digests[0] = {name: digest(parameter) for name, parameter in self._parameters()}
            self._look()

    def _parameters(self) -> Iterator[tuple[str, Any]]:
        """Those of modules, and others that an optimizer has."""
        return itertools.chain(self.script.parameters(), self._strangers())

    def _strangers(self) -> Iterator[tuple[str, Any]]:
        """None where parameters are sharded."""
        sharded = self.watched.engine is not None or any(map(shards_of, self.script.models()))
        return iter(()) if sharded else strangers_of(self.script)

    def _look(self) -> None:
        modules = [part for model in self.script.models() for part in model.modules()]
        kinds = {type(module).__name__ for module in modules}
        self.keeps = next((kind for kind in WHOLE if kind in kinds), "")
        engine = self.watched.engine
        if engine is not None or "DeepSpeedEngine" in kinds:
            self.keeps = "DeepSpeed"
        shards = set().union(*map(shards_of, self.script.models()))
        self.apart |= {name for name, one in self.script.parameters() if id(one) in shards or local(one) is not one}
        statistics = {
            id(buffer) for part in modules if type(part).__name__ in NORMS for buffer in part.buffers(recurse=False)
        }
        statistics |= sent_anew(modules)
        self.apart |= {name for name, buffer in self.script.buffers() if id(buffer) in statistics}

    def before_optimizer(self) -> None:
        """What averages gradients has done so."""
        step = self.script.step + 1
        averages = self.keeps in WHOLE or (not self.keeps and self.script.world_size > 1)
        if averages and step <= COMPARED and step not in self.gradients:
            named = self._parameters()
            self.gradients[step] = {name: digest(one.grad) for name, one in named if one.grad is not None}

    def iterated(self, skipped: bool) -> None:
        """A step has ended on this rank."""
        if self.script.world_size > 1 and self.script.step < COMPARED:
            strangers = {name: digest(one) for name, one in self._strangers()}
            self.digests[self.script.step + 1] = self.script.digests() | strangers

    def facts(self) -> Any:
        """A record, Replica."""
        state = {}
        if self.script.world_size > 1:
            strangers = {name: digest(one) for name, one in self._strangers()}
            self.digests[self.script.step] = self.script.digests_now() | strangers
            state = dict(self._state())
        replica = Replica(
            keeps=self.keeps,
            digests=self.digests,
            gradients=self.gradients,
            state=state,
            apart=sorted(self.apart),
            line=self.line,
        )
        return msgspec.to_builtins(replica, str_keys=True)

    def _state(self) -> Iterator[tuple[str, str]]:
        names = {id(one): name for name, one in self.script.parameters()}
        for optimizer in self.watched.optimizers.values():
            if type(optimizer).__name__ == "ZeroRedundancyOptimizer":
                return
            for parameter, state in optimizer.state.items():
                if id(parameter) in names:
                    for key, tensor in tensors_in(state):
                        yield f"{names[id(parameter)]} ({key})", digest(tensor)


def strangers_of(script: ProvedScript) -> Iterator[tuple[str, Any]]:
    """Parameters that an optimizer has and no trained module, by their place there."""
    known = {id(one) for _, one in script.parameters()}
    for optimizer in script.watched.optimizers.values() or script.watched.made:
        for number, group in enumerate(optimizer.param_groups):
            for at, one in enumerate(group["params"]):
                if id(one) not in known:
                    yield f"{type(optimizer).__name__}.param_groups[{number}]['params'][{at}]", one


def _judge(seen: Seen) -> Judged:
    ranks = [msgspec.convert(one, Replica, strict=False) for one in seen]
    if len(ranks) < 2:
        raise CannotTry(Remark(what="one_rank"))
    first = ranks[0]
    steps = sorted(set.intersection(*({*rank.digests} for rank in ranks)))
    if len(steps) < 2 or not all(rank.digests[0] for rank in ranks if 0 in rank.digests):
        raise CannotTry(Remark(what="few"))
    apart = set().union(*(rank.apart for rank in ranks))
    names = [name for name in first.digests[steps[-1]] if name not in apart]
    names = [name for name in names if all(name in rank.digests[steps[-1]] for rank in ranks)]
    if not names:
        raise CannotTry(Remark(what="shards"))
    begun = [name for name in names if name in first.digests[0] and _differs(ranks, 0, name)]
    if not first.keeps and begun and not all(_has_equal(ranks, 1, [name]) for name in begun):
        raise CannotTry(Remark(what="unknown", subject=begun[0], more=len(begun) - 1))
    wrong = _parameters(ranks, steps, names, first)
    if not wrong:
        state = [name for name in first.state if len({rank.state.get(name) for rank in ranks}) > 1]
        owned = [name for name in state if name.rpartition(" (")[0] not in apart]
        wrong = grouped("state", owned)
    held = Remark(what="held", number=len(names), expected=steps[-1])
    aside = [Remark(what="shards_aside", number=len(apart))] if apart else []
    return RELATION.broken(wrong, aside, held)


def _differs(ranks: Sequence[Replica], step: int, name: str) -> bool:
    return len({rank.digests.get(step, {}).get(name) for rank in ranks}) > 1


def _parameters(ranks: Sequence[Replica], steps: Sequence[int], names: Sequence[str], first: Replica) -> list[Remark]:
    """What differs after the last step, by when it began to. What is equal again, as with local SGD, is right."""
    last = [name for name in names if _differs(ranks, steps[-1], name)]
    if not last:
        return []
    since = {name: next(step for step in steps if _differs(ranks, step, name)) for name in last}
    gradients = _gradients(ranks, last)
    averaged = _has_equal(ranks, gradients[0] if gradients else 1, names)
    if not first.keeps and len(last) > len(names) / 2 and not averaged:
        return grouped("alone", last, step=min(since.values()), line=first.line)
    if gradients and (first.keeps or averaged):
        step, names = gradients
        return grouped("gradients", names, step=step, line=first.line)
    earliest = min(since.values())
    begun = [name for name in last if since[name] == earliest]
    return grouped("differs" if earliest else "begins", begun, step=earliest, line=first.line)


def _gradients(ranks: Sequence[Replica], names: Sequence[str]) -> tuple[int, list[str]] | None:
    """The first step in which gradients of these parameters are not equal, and which."""
    for step in sorted(ranks[0].gradients):
        found = [rank.gradients.get(step, {}) for rank in ranks]
        if differing := [name for name in names if len({one.get(name) for one in found}) > 1]:
            return step, differing
    return None


def _has_equal(ranks: Sequence[Replica], step: int, names: Sequence[str]) -> bool:
    """Whether the script averages gradients of some of these in a step."""
    found = [rank.gradients.get(step, {}) for rank in ranks]
    return any(name in found[0] and len({one.get(name) for one in found}) == 1 for name in names)


RELATION = Relation(
    name="replicas",
    order=20,
    asks="Parameters, buffers and optimizer state that ought to be equal on all ranks are.",
    probe=f"{__name__}:ReplicaProbe",
    says={
        "held": "{number} parameters and buffers are equal on all ranks up to step {expected}",
        "one_rank": "the script trains on one rank: start it on two, such as by torchrun --nproc-per-node 2",
        "few": "the script made too few steps: let it train longer",
        "shards": "all parameters are sharded: start the script with DistributedDataParallel or a lower stage",
        "shards_aside": "{number} shards and running statistics, which each rank has of its own",
        "unknown": "ranks begin with other numbers in {subject}, and nothing keeps them equal: which ones ought to be "
        "equal is not known. Wrap the model in DistributedDataParallel, or set the same seed on all ranks",
        "differs": "{subject} differs between ranks since step {step}",
        "gradients": "ranks train apart: nothing averages the gradient of {subject} in step {step}. Is it added after "
        "the model is wrapped, or its backward under no_sync()?",
        "begins": "{subject} differs between ranks before the first step",
        "alone": "ranks train apart since step {step}: {subject} differ, and nothing averages gradients. Is the model "
        "wrapped in DistributedDataParallel, and called through the wrapper?",
        "state": "the optimizer's state of {subject} differs between ranks, although the parameters are equal",
    },
    prove=by_own_run(_judge),
)
