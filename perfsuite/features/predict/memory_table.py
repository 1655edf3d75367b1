"""A predicted memory for people: the table, the bar against the capacity, the largest tensors, and the calculation."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from perfsuite.catalog.definitions import Workload
from perfsuite.features.predict.prediction import WHOLE_STEP, Estimate, Prediction
from perfsuite.features.predict.state_bound import StateBound
from perfsuite.records.measurement import Measurement
from perfsuite.records.suspects import part_name
from perfsuite.show.text.memory_categories import CATEGORIES
from perfsuite.show.text.tables import bare_table
from perfsuite.system.units import show_bytes, show_change, show_several

BAR = 60  # characters
BESIDE = (". allocator", "+ overhead")


def batches(workload: Workload, padded: bool) -> str:
    """``micro-batches of 1 × 512 + 128 tokens, with padding``: what is predicted, of encoder and decoder."""
    if not workload.sequence_length:
        return f"micro-batches of {workload.micro_batch} samples"
    lengths = f"{workload.sequence_length} + {workload.target_length}" if workload.target_length else None
    kind = "with padding" if padded else "without padding"
    return f"micro-batches of {workload.micro_batch} × {lengths or workload.sequence_length} tokens, {kind}"


def headroom(prediction: Prediction | Estimate | StateBound) -> int | None:
    """Bytes of the device that are left, negative if some are missing; None without a capacity."""
    return None if prediction.capacity_bytes is None else prediction.capacity_bytes - prediction.needed_bytes


def parts(prediction: Prediction) -> Table:
    """The peak by category, next to the closed forms."""
    table = bare_table("", "at the peak", "by formula", "meaning")

    def row(name: str, size: int, meaning: str, formula: int | None = None) -> None:
        table.add_row(part_name(name), show_bytes(size), "" if formula is None else show_bytes(formula), meaning)

    for name in prediction.categories:
        here, theory = prediction.parts.get(name, 0), prediction.theory.get(name)
        if here or theory:
            row(name, here, CATEGORIES[name][1], theory)
    if prediction.phase == WHOLE_STEP:
        row("in all", prediction.peak_bytes, "of each rank, as the compiler says")
    else:
        row("live tensors", prediction.peak_bytes, f"peak of rank {prediction.rank}, in its {phase(prediction)}")
    if prediction.smallest_bytes:
        row("allocated", prediction.allocated_bytes, "in blocks of 512 bytes and more")
        row("reserved", prediction.reserved_bytes, "on an idle GPU with enough memory")
        row("smallest that fits", prediction.smallest_bytes, "if the cache is freed when needed")
    if prediction.setup_bytes > prediction.peak_bytes:
        text = "live tensors before the first step: perfsuite builds the whole model on every rank"
        row("while building", prediction.setup_bytes, text)
    if prediction.host_bytes:
        row("on the host", prediction.host_bytes, "offloaded to host memory, per rank")
    for name, size in prediction.overhead.items():
        row(name, size, "outside of tensors; a constant (perfsuite/features/predict/overhead.py)")
    return table


def beside(prediction: Prediction, measured: Measurement) -> Table:
    """The peak on emulated GPUs by category, and how much more or less the prediction has."""
    table = bare_table("", "emulated", "predicted", "difference", "meaning")
    predicted = prediction.outcome != "unsupported"

    def row(name: str, here: int, there: int, meaning: str) -> None:
        apart = f"{there - here:+,} B" if there != here else "0"
        others = (show_bytes(there), apart) if predicted else ("–", "–")
        table.add_row(part_name(name), show_bytes(here), *others, meaning)

    peak = measured.readings["peak_memory_bytes"]
    for name, (_, meaning) in CATEGORIES.items():
        here, there = peak.parts.get(name, 0), prediction.parts.get(name, 0)
        if here or there:
            row(name, here, there, meaning)
    row("live tensors", int(peak.value), prediction.peak_bytes, "peak of the fullest rank")
    reserved = int(measured.readings["reserved_memory_bytes"].value)
    row("reserved", reserved, prediction.reserved_bytes, "by the caching allocator")
    return table


def phase(prediction: Prediction) -> str:
    """The phase of the peak, in words."""
    return {"optimizer": "optimizer step", "end": "end of a step"}.get(prediction.phase, prediction.phase)


def bar(prediction: Prediction) -> list[str]:
    """The needed memory against the capacity, one letter per share of the whole, and a verdict."""
    if prediction.capacity_bytes is None:
        return [f"needs {show_bytes(prediction.needed_bytes)}; a CPU can use all of the machine's memory"]
    sizes = {CATEGORIES[name][0]: size for name, size in prediction.parts.items()}
    sizes["."] = prediction.smallest_bytes - prediction.peak_bytes  # lost to blocks and segments
    sizes["+"] = sum(prediction.overhead.values())
    scale = BAR / max(prediction.capacity_bytes, prediction.needed_bytes)
    text = "".join(letter * round(size * scale) for letter, size in sizes.items())
    edge = round(prediction.capacity_bytes * scale)
    text = text.ljust(BAR)
    left = headroom(prediction)
    assert left is not None
    verdict = f"fits, {show_bytes(left)} left" if left >= 0 else f"out of memory, {show_bytes(-left)} missing"
    return [
        f"[{text[:edge]}|{text[edge:]}",
        f"{show_bytes(prediction.needed_bytes)} of {show_bytes(prediction.capacity_bytes)}: {verdict}",
        "  ".join([*(f"{CATEGORIES[name][0]} {part_name(name)}" for name in prediction.parts), *BESIDE]),
    ]


def largest(prediction: Prediction, most: int = 12) -> Table:
    """The tensors alive at the peak, by operator and module."""
    table = bare_table("bytes", "tensors", "category", "made by", "in")
    for held in prediction.held[:most]:
        table.add_row(show_bytes(held.bytes), str(held.count), part_name(held.category), held.operator, held.module)
    return table


def ranking(predictions: Sequence[Prediction], names: Sequence[str]) -> Table:
    """Cells next to each other."""
    table = bare_table("", "needs", "left", "live tensors", "activations", "")
    for name, prediction in zip(names, predictions, strict=True):
        if prediction.outcome == "unsupported":
            table.add_row(name, "", "", "", "", f"not predicted: {prediction.reason}")
            continue
        left = headroom(prediction)
        outcome = "fits" if left is None or left >= 0 else "out of memory"
        table.add_row(
            name,
            show_bytes(prediction.needed_bytes),
            "" if left is None else show_bytes(left),
            show_bytes(prediction.peak_bytes),
            show_bytes(prediction.parts.get("activations", 0)),
            outcome,
        )
    return table


def explain(prediction: Prediction, parameters: int) -> list[str]:
    """How the predicted figure follows from the usual estimate by hand, in sentences."""
    unknown = [name for name in ("gradients", "optimizer_state") if name not in prediction.theory]
    by_hand = sum(prediction.theory.values())
    kept = ("parameters", "master_parameters", "gradients", "optimizer_state")
    states = {name: prediction.parts.get(name, 0) for name in kept}
    others = {name: size for name, size in prediction.parts.items() if name not in states}
    moving = prediction.peak_bytes - sum(states.values())
    by_formula = [
        f"{parameters:,} parameters at 16 bytes each need {show_bytes(16 * parameters)}: the usual estimate "
        "(2 + 2 + 12 bytes in the ZeRO paper, for Adam in half precision).",
        f"For this precision and these ranks the closed forms give {show_bytes(by_hand)}: "
        + f"{_listed(prediction.theory)}."
        + (f" They do not cover {' and '.join(unknown).replace('_', ' ')} here." if unknown else ""),
        f"At the peak, in the {phase(prediction)}, {show_bytes(sum(states.values()))} of them are alive: "
        + _listed({name: size for name, size in states.items() if size})
        + (
            "."
            if prediction.parts.get("gradients", 0) >= prediction.theory.get("gradients", 0)
            else "; gradients are allocated and freed."
        ),
    ]
    sentences = [
        *(by_formula if parameters else ["The definition gives no number of parameters, so no closed form is known."]),
        f"No closed form covers the rest, {show_bytes(moving)}: "
        f"{_listed({name: size for name, size in others.items() if size})}.",
    ]
    if prediction.held:
        tensor = max(
            (held for held in prediction.held if held.category not in states), key=lambda held: held.bytes, default=None
        )
        if tensor:
            where = f" in {tensor.module}" if tensor.module else ""
            sentences.append(
                f"The largest of it is {show_bytes(tensor.bytes)} in {show_several(tensor.count, 'tensor')} made by "
                f"{tensor.operator}{where}."
            )
    if prediction.smallest_bytes:
        lost = prediction.smallest_bytes - prediction.peak_bytes
        sentences.append(
            f"The caching allocator needs {show_bytes(prediction.smallest_bytes)} for "
            f"{show_bytes(prediction.peak_bytes)} of tensors if memory is short "
            f"({show_change(prediction.peak_bytes, prediction.smallest_bytes)}: {show_bytes(lost)} between blocks). "
            f"It reserves {show_bytes(prediction.reserved_bytes)} if memory is not short.",
        )
        beside = _listed(prediction.overhead, " + ")
        sentences.append(f"The device also needs {beside}: {show_bytes(prediction.needed_bytes)} in all.")
    return sentences


def _listed(sizes: Mapping[str, int], separator: str = ", ") -> str:
    """``master parameters 1.00 GiB, gradients 512.00 MiB``."""
    return separator.join(f"{part_name(name)} {show_bytes(size)}" for name, size in sizes.items())
