"""trained: every parameter that is meant to train has a gradient, is in an optimizer once, and moves.

A frozen one does not move in an update, and tied ones stay tied. Sharded parameters are seen by their shards.
"""

from collections.abc import Iterator, Sequence

from perfsuite.features.prove.relation import (
    CannotTry,
    Judged,
    Relation,
    Remark,
    Seen,
    by_own_run,
    grouped,
    typed,
)
from perfsuite.features.prove.relations._parameter_traces import ParameterTrace, ParameterTraces
from perfsuite.features.prove.relations._trained_probe import FEWEST, PROBE


def _judge(seen: Seen) -> Judged:
    ranks = typed(seen, ParameterTraces)
    first, updates = ranks[0], min(rank.updates for rank in ranks)
    if not first.parameters and first.lost and updates >= FEWEST:
        return RELATION.broken(grouped("stale", first.lost, number=first.strangers, line=first.optimizer_line))
    if not first.parameters:
        raise CannotTry(Remark(what="no_parameters"))
    if updates < FEWEST:
        raise CannotTry(Remark(what="few", number=updates))
    merged = {name: [rank.parameters[name] for rank in ranks if name in rank.parameters] for name in first.parameters}
    trained = {name: some for name, some in merged.items() if some[0].trains}
    wrong = [
        *_about_gradients(trained, first),
        *_about_optimizers(trained, first),
        *_about_moves(trained, merged, first),
    ]
    if first.clips:
        wrong.append(Remark(what=f"clips_{first.clips}", line=first.clip_line))
    if first.twin:
        wrong.append(Remark(what="twin", subject=first.twin, line=first.optimizer_line))
    if first.hidden:
        kind, line = first.hidden[0]
        wrong.append(Remark(what="hidden", subject=kind, number=len(first.hidden), line=line))
    wrong += grouped("undone", first.undone, line=first.step_line)
    wrong += grouped("base", first.base)
    wrong += grouped("unfrozen", first.unfrozen)
    if first.untied:
        wrong.append(Remark(what="untied", subject=first.untied))
    elif pairs := first.parted or first.shared:
        (one, other), *more = pairs
        wrong.append(Remark(what="parted" if first.parted else "shared", subject=other, other=one, more=len(more)))
    aside = grouped("unused", [name for name, some in trained.items() if _unused(some)]) if not wrong else []
    moved = sum(any(one.moved for one in some) for some in trained.values())
    return RELATION.broken(wrong, aside, Remark(what="held", number=moved, expected=len(merged) - len(trained)))


def _unused(some: Sequence[ParameterTrace]) -> bool:
    return not any(one.nonzero or one.moved for one in some)


def _about_gradients(trained: dict[str, list[ParameterTrace]], first: ParameterTraces) -> Iterator[Remark]:
    if first.by_hand:
        return
    if trained and not any(one.nonzero for some in trained.values() for one in some):
        zero = [name for name, some in trained.items() if any(one.has_gradient for one in some)]
        yield from grouped("zero", zero, line=first.step_line) or [Remark(what="no_gradients", line=first.step_line)]
        return
    spoiled = {name: max(one.spoiled for one in some) for name, some in trained.items()}
    names = [name for name, step in spoiled.items() if step]
    yield from grouped("not_finite", names, step=spoiled[names[0]] if names else 0)
    kept = {name: max(one.kept for one in some) for name, some in trained.items() if some[0].optimizers}
    names = [name for name, step in kept.items() if step]
    yield from grouped("uncleared", names, step=kept[names[0]] if names else 0, line=first.step_line)
    held = {name: some for name, some in trained.items() if some[0].optimizers and not any(one.nonzero for one in some)}
    for how in ("no_grad", "cut"):
        names = [name for name, some in held.items() if some[0].ran == how and not some[0].has_gradient]
        one = held[names[0]][0] if names else None
        yield from grouped(how, names, other=one.before if one else "", line=one.line if one else "")
    ran = any(one.ran for some in trained.values() for one in some)
    zero = [name for name, some in held.items() if any(one.has_gradient for one in some)]
    yield from grouped("zero", [name for name in zero if held[name][0].ran or not ran])  # an expert without a token


def _about_optimizers(trained: dict[str, list[ParameterTrace]], first: ParameterTraces) -> Iterator[Remark]:
    if first.by_hand:
        return
    absent = [
        name
        for name, some in trained.items()
        if not some[0].optimizers and any(one.nonzero for one in some) and not any(one.moved for one in some)
    ]
    kind = "stale" if first.strangers else "absent"
    absent += first.outside
    yield from grouped(kind, absent, number=first.strangers, line=first.optimizer_line)
    yield from grouped("twice", [name for name, some in trained.items() if some[0].optimizers > 1])


def _about_moves(
    trained: dict[str, list[ParameterTrace]], merged: dict[str, list[ParameterTrace]], first: ParameterTraces
) -> Iterator[Remark]:
    stuck = [
        name
        for name, some in trained.items()
        if max(one.tried for one in some) >= FEWEST and not any(one.moved for one in some)
    ]
    yield from grouped("stuck", stuck, other=trained[stuck[0]][0].dtype if stuck else "")
    idle = {name: min(one.idle for one in some) for name, some in trained.items()}
    names = [name for name, some in trained.items() if idle[name] >= FEWEST and not any(one.moved for one in some)]
    yield from grouped("idle", names, number=idle[names[0]] if names else 0, line=first.optimizer_line)
    copies = first.stuck_copies
    yield from grouped("copy", list(copies), other=next(iter(copies.values()), ""))
    frozen = {name: max(one.moved_frozen for one in some) for name, some in merged.items()}
    names = [name for name, step in frozen.items() if step]
    yield from grouped("frozen", names, step=frozen[names[0]] if names else 0)


RELATION = Relation(
    name="trained",
    order=10,
    asks="Every parameter that is meant to train has a gradient, is in an optimizer once, and moves.",
    probe=PROBE,
    says={
        "held": "{number} parameters move, and {expected} frozen ones do not",
        "no_parameters": "no module was seen whose parameters an optimizer has",
        "few": "the script made {number} updates, and 3 are needed: let it train longer",
        "no_gradients": "no parameter has a gradient when the optimizer steps: is zero_grad() called between "
        "backward() and step()? Does a wrapper never synchronize gradients?",
        "not_finite": "the optimizer stepped with a gradient that is not finite, of {subject}, in step {step}",
        "uncleared": "the gradient of {subject} in step {step} has that of the step before it: is "
        "optimizer.zero_grad() called after each step?",
        "no_grad": "the optimizer has {subject}, but its module runs under torch.no_grad(): it learns nothing",
        "cut": "no gradient reaches {subject}: {other} goes on from tensors without one. Is an output detached?",
        "zero": "the gradient of {subject} is exactly 0 in each step: is it masked, or multiplied by 0?",
        "absent": "the optimizer does not have {subject}: gradients reach it, and nothing moves it. If that is meant, "
        "call requires_grad_(False)",
        "hidden": "{number} parameters get gradients, and no model has them: {subject} is called in the forward and "
        "was not registered. Keep modules in nn.ModuleList or nn.ModuleDict",
        "stale": "the optimizer does not have {subject}, but {number} parameters that no module has: was it made "
        "before the model was replaced or wrapped?",
        "twice": "two optimizers have {subject}: it is updated twice in each step",
        "stuck": "{subject} does not move in any update, in {other}: an update is smaller than its rounding. Keep "
        "float32 weights",
        "idle": "the learning rate of {subject} was 0 in all of {number} updates, and no scheduler raises it. If it "
        "is meant to be frozen, call requires_grad_(False)",
        "copy": "{subject} is written in each step and stays as it was, in {other}: what an average adds to a copy is "
        "smaller than its rounding. Keep averages in float32",
        "frozen": "{subject} is frozen, and the optimizer moved it in step {step}",
        "untied": "the config ties {subject} to the input embedding, but it is a parameter of its own",
        "parted": "{subject} was the same parameter as {other}, and is one of its own now: tie both again after "
        "to_empty() or load_state_dict(assign=True)",
        "shared": "{subject} and {other} are two parameters in one memory: it is updated twice, each time by a part of "
        "the gradient. Give both modules the same parameter",
        "base": "{subject} trains beneath the adapters, which are saved without it: did something unfreeze it?",
        "unfrozen": "{subject} has requires_grad = False, which freezes nothing of a module: call "
        "requires_grad_(False)",
        "twin": "two models of the class {subject} began with the same numbers, and both are trained: freeze the one "
        "that is a reference",
        "undone": "{subject} is not what DeepSpeed's float32 copy of it is, which the first update puts in its place: "
        "change weights before deepspeed.initialize()",
        "clips_late": "gradients are clipped after the optimizer has used them: clip them before optimizer.step()",
        "clips_empty": "no parameter has a gradient where gradients are clipped: DeepSpeed clips by gradient_clipping "
        "of its config, and otherwise clip after backward()",
        "clips_scaled": "gradients are clipped while a GradScaler scales them: call scaler.unscale_(optimizer) before",
        "unused": "no gradient reaches {subject}: its output does not reach the loss",
    },
    prove=by_own_run(_judge),
)
