"""What ``perfsuite prove`` prints."""

import math

from perfsuite.records.gradients import Accumulation, Agreement, Doubt, Split
from perfsuite.system.units import listed, show_number

DOUBTS = {
    Doubt.WEIGHTS: "the weights differ at the start (set a seed before the model is built)",
    Doubt.ROWS: "the steps have different rows (set a seed for their order, draw no random numbers per batch, and mask "
    "padding by an attention_mask)",
    Doubt.MICRO_BATCHES: "the number of backward passes did not follow the option of the accumulation",
    Doubt.RANDOM: "the model draws random numbers in its forward",
    Doubt.BATCH_NORM: "BatchNorm uses the statistics of each micro-batch",
    Doubt.VALUES: "a gradient is zero or not finite",
}
NEAR = 0.02


def render_accumulation(proof: Accumulation) -> str:
    """Both splits, and whether their gradients agree."""
    lines = [_line(split) for split in (proof.whole, proof.parts)]
    if proof.parts.dropout or proof.whole.dropout:
        lines.append("  dropout was taken out of both")
    share = f"{proof.difference:.2g} of the gradient's norm, where the precision explains {proof.allowed:.2g}"
    if proof.agreement is Agreement.AGREE:
        return "\n".join([f"{proof.cell}: the accumulation is right", *lines, f"  they differ by {share}"])
    if proof.agreement is Agreement.OPEN:
        reasons = listed([DOUBTS[doubt] for doubt in proof.doubts])
        told = f"{proof.cell}: whether the accumulation is right cannot be decided: {reasons}."
        return "\n".join([told, *lines, f"  they differ by {share}"])
    if proof.uncleared:
        told = f"{proof.cell}: the accumulation is WRONG: a step's gradient has that of the step before it"
        return "\n".join([told, *lines, "  Is optimizer.zero_grad() called after each step?"])
    told = f"{proof.cell}: the accumulation is WRONG: one global batch has two gradients"
    return "\n".join([told, *lines, f"  they differ by {share}, most in {proof.worst}", f"  {_hint(proof)}"])


def _line(split: Split) -> str:
    norms = " ".join(show_number(norm) for norm in split.norms)
    own = " (the model's own mean, without the Trainer's count of labels)" if split.uncounted else ""
    shape = f"micro-batch {split.micro_batch} x accumulation {split.accumulation}"
    return f"  {shape}: gradient norm step by step {norms}{own}"


def _hint(proof: Accumulation) -> str:
    """What the ratio of both norms looks like."""
    ratio, times = proof.parts.norms[0] / proof.whole.norms[0], proof.parts.accumulation
    if math.isclose(ratio, times, rel_tol=NEAR):
        return f"The accumulated gradient is {times} times as large: is the loss divided by the accumulation?"
    if math.isclose(ratio, 1 / times, rel_tol=NEAR):
        return f"The accumulated gradient is {times} times too small: is the loss divided twice?"
    if proof.whole.uncounted and not math.isclose(ratio, 1, rel_tol=proof.allowed):
        return f"The accumulated gradient is {ratio:.4g} times as large: are its labels counted as the model does?"
    return (
        f"The accumulated gradient is {ratio:.4g} times as large. A mean of the micro-batches' means weighs labels "
        "unequally; a loss that compares rows with each other depends on the micro-batch."
    )
