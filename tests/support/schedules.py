"""What a schedule has done to a training, checked in the rank: called as the faults of rank/faults."""

import math


def moves_once(session, trainer, meters):
    """In each step, every group has the learning rate of transformers' documentation."""
    if not meters:  # the update is checked without a schedule
        return
    steps: list[int] = []

    def begins(phase):
        if phase != "optimizer":
            return
        step = len(steps)
        steps.append(step)
        decay = 0.5 * (1 + math.cos(math.pi * (step - 4) / (1000 - 4)))
        wanted = session.recipe.learning_rate * (step / 4 if step < 4 else decay)
        rates = [group["lr"] for group in trainer.optimizer.param_groups]
        assert all(math.isclose(rate, wanted, rel_tol=1e-9, abs_tol=1e-15) for rate in rates), (step, rates, wanted)

    session.phases.listen(begins)


def stands_still(session, trainer, meters):
    """The schedule is there and never asked."""
    if meters:
        trainer.loop.schedule.step = lambda: None
