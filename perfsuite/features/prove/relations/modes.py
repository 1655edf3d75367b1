"""modes: the model trains in training mode, and an evaluation changes nothing that training reads.

Dropout and BatchNorm are what a mode changes. A part that is in evaluation mode while its model is not is meant so, as
where BatchNorm is frozen, unless an evaluation has called that part. A forward without gradients in each step, in
training mode, is no evaluation: a loss in parts needs it, and so do labels that the model makes for itself.
"""

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
from perfsuite.features.prove.relations._mode_probe import PROBE, Modes


def _judge(seen: Seen) -> Judged:
    facts = typed(seen, Modes)
    first = max(facts, key=lambda fact: fact.evaluations)
    wrong: list[Remark] = []
    for what, fault in first.faults.items():
        if what == "seeded" and "again" in first.faults:  # what follows such an evaluation
            continue
        name = "always_off" if what == "off" and first.always_off else what
        wrong += grouped(name, fault.names, step=fault.step, line=fault.line)
    if not wrong and not first.matters and not first.evaluations:
        raise CannotTry(Remark(what="nothing"))
    aside = [] if first.evaluations else [Remark(what="no_evaluation", number=first.steps)]
    held = Remark(what="held" if first.evaluations else "trains", number=first.steps, expected=first.evaluations)
    return RELATION.broken(wrong, aside, held)


RELATION = Relation(
    name="modes",
    order=40,
    asks="The model trains in training mode, and an evaluation changes nothing that training reads.",
    probe=PROBE,
    says={
        "held": "training mode in {number} steps; {expected} calls of an evaluation changed nothing",
        "trains": "training mode in {number} steps",
        "nothing": "the model has neither Dropout nor BatchNorm, and no evaluation was seen: let the script evaluate "
        "sooner, such as after 10 steps",
        "no_evaluation": "no evaluation was seen in {number} steps: let the script evaluate sooner",
        "off": "training goes on with {subject} in evaluation mode since step {step}: is model.train() called after "
        "the evaluation?",
        "always_off": "{subject} trains in evaluation mode from the first step on, without its dropout and BatchNorm: "
        "call model.train()",
        "on": "the evaluation after step {step} runs in training mode: {subject} is active. Call model.eval()",
        "drops": "the evaluation after step {step} drops values at random in {subject}(): does it get the argument "
        "training=self.training?",
        "changed": "the evaluation after step {step} changes {subject}, which training reads",
        "swapped": "the evaluation after step {step} puts other weights into {subject}, and training goes on with "
        "them: put its own back",
        "frozen": "the evaluation after step {step} freezes {subject}, and training goes on without it: call "
        "requires_grad_(True) after it",
        "seeded": "{subject} draws the random numbers of an earlier step again after step {step}: is a seed set in the "
        "loop?",
        "reference": "{subject} is not trained, and drops values at random in each step: call its eval()",
        "again": "the evaluation after step {step} sets a seed, so {subject} draws the same random numbers after each: "
        "use a torch.Generator, or torch.random.fork_rng()",
    },
    prove=by_own_run(_judge),
)
