"""A plan as text: everything in it is predicted, and says so."""

from collections.abc import Sequence

from rich.table import Table

from perfsuite.features.predict.prediction import Plan, VerifiedLayout
from perfsuite.show.text.tables import bare_table
from perfsuite.system.units import DAY, show_bytes, show_count, show_durations, show_ratio, show_seconds, show_whole

SURE = 0.99  # a chance from which on it is not told
TOLD = 0.0005  # of a step: what is less is 0.0 %
SMALL = 0.01  # of the closed form: what a part is off by less is not told


def summary(plan: Plan) -> list[str]:
    """What is planned, and the answer: days, device-hours and cost, with the interval of 90 %."""
    lengths = f"{plan.sequence} + {plan.target}" if plan.target else str(plan.sequence)
    lines = [
        f"{plan.model} on {plan.hardware}: predicted, not measured",
        f"{show_whole(plan.tokens)} tokens in batches of {show_whole(plan.samples)} × {lengths}; "
        f"{show_whole(plan.tried)} layouts, {show_whole(plan.fitting)} fit",
        f"in {plan.precision} with {plan.stack_says} ({'assumed: ' if plan.stack_usual else ''}--stack {plan.stack})",
    ]
    if plan.parameters:
        lines.insert(1, _model(plan))
    if plan.experts:
        lines.append("Every expert gets equally many tokens: --set imbalance=1.2 says otherwise.")
    if not plan.layouts:
        if not plan.tried:
            return [*lines, "No layout divides the model, the ranks and the batch evenly: try another --batch."]
        others = " or ".join(f"--stack {name}" for name in plan.other_stacks)
        return [*lines, f"No layout fits: {lacking(plan)}.", *([f"With {others} some do."] if others else [])]
    best = plan.layouts[0]
    if best.predicted_bytes > plan.capacity_bytes:
        there = f"{show_bytes(best.predicted_bytes)} of {show_bytes(plan.capacity_bytes)} per device"
        verdict = "may not fit: by a coarse form" if plan.fitting else "does not fit:"
        lines.append(f"{best.layout} {verdict} it needs {there}.")
    lines += [
        "",
        f"best: {best.layout}",
        f"  {_time(plan)}, {_range(plan.gpu_hours)} device-hours"
        + (f", cost {_range(plan.cost)}" if plan.cost else ""),
        f"  {show_whole(best.predicted_tokens_per_second)} tokens/s, MFU {show_ratio(best.predicted_mfu)}, "
        f"HFU {show_ratio(best.predicted_hfu)}; interval of 90 %: {best.regime}",
    ]
    return lines


def _model(plan: Plan) -> str:
    """Parameters, and what of the model a plan of text does not have."""
    found = f"{show_whole(plan.parameters)} parameters"
    if plan.active_parameters not in (0, plan.parameters):
        found += f", of which a token passes {show_whole(plan.active_parameters)}"
    if plan.later_layers:
        found += f"; multi-token prediction adds layers: {plan.later_layers}"
    return found + (f"; no image passes {', '.join(plan.beside)}" if plan.beside else "")


def lacking(plan: Plan) -> str:
    """What the layouts of a plan need that nothing has: memory of the devices, or else of the hosts."""
    if plan.least_host_bytes:
        there = f"{show_bytes(plan.least_host_bytes)} of a host that has {show_bytes(plan.host_memory_bytes)}"
        return f"with offload they need {there} (--host-memory)"
    return f"the smallest needs {show_bytes(plan.least_bytes)} of {show_bytes(plan.capacity_bytes)} per device"


def _time(plan: Plan) -> str:
    """``33.1 (29.8–40.2) days``, in the unit that suits it."""
    low, middle, high = (days * DAY for days in plan.days)
    return show_durations(middle, low, high)


def _range(values: Sequence[float]) -> str:
    """``33.1 (29.8–40.2)``."""
    low, middle, high = map(show_count, values)
    return f"{middle} ({low}–{high})"


def choices(plan: Plan) -> Table:
    """The layouts, best first, and why the others lose."""
    table = bare_table("layout", "predicted step", "tokens/s", "MFU", "HFU", "memory", "loses by")
    for layout in plan.layouts:
        table.add_row(
            layout.layout,
            show_seconds(layout.predicted_step_seconds),
            show_whole(layout.predicted_tokens_per_second),
            show_ratio(layout.predicted_mfu),
            show_ratio(layout.predicted_hfu),
            show_bytes(layout.predicted_bytes) + _risk(layout.predicted_chance_to_fit),
            layout.loses_by,
        )
    return table


def _risk(chance: float) -> str:
    """``, 85 % likely to fit``; nothing if it is sure."""
    return f", {show_ratio(chance)} likely to fit" if chance < SURE else ""


def breakdown(plan: Plan) -> Table:
    """The seconds of the best layout's step by cause, without those that are less than ``TOLD`` of it."""
    best = plan.layouts[0]
    table = bare_table("part of the step", "predicted", "share")
    for name, seconds in best.predicted_parts.items():
        if (share := seconds / best.predicted_step_seconds) >= TOLD:
            table.add_row(name, show_seconds(seconds), show_ratio(share))
    return table


def verified(plan: Plan) -> Table:
    """The layouts that were traced: the closed form of the same kernels, and the parts in which the trace differs."""
    table = bare_table("layout", "planned", "closed form", "traced", "traced / closed", "", "the closed form is off by")
    for one in plan.verified:
        if one.traced and one.closed and one.ratio:
            table.add_row(
                one.layout,
                show_bytes(one.planned_bytes),
                show_bytes(one.closed.closed_bytes),
                show_bytes(one.traced.traced_bytes),
                f"{one.ratio:.3f}",
                "fits" if one.traced.fits else "does not fit" + ", with its kernels" * bool(one.otherwise),
                off_by(one),
            )
    return table


def off_by(one: VerifiedLayout) -> str:
    """The parts in which the trace differs from the closed form, the largest difference first."""
    assert one.closed and one.traced
    traced, closed = one.traced.traced_parts, one.closed.closed_parts
    parts = {name: traced[name] - size for name, size in closed.items()}
    told = [name for name in parts if abs(parts[name]) >= SMALL * one.closed.closed_bytes]
    told.sort(key=lambda name: -abs(parts[name]))
    return ", ".join(f"{name} {'+' * (parts[name] > 0)}{show_bytes(parts[name])}" for name in told) or "no part by 1 %"


def verified_notes(plan: Plan) -> list[str]:
    """What the traces are, and why others are missing."""
    traced = [one for one in plan.verified if one.traced]
    notes = []
    if traced:
        notes.append("Traced is the rank that needs most, from perfsuite's own engine, without running it.")
    if otherwise := {name: values for one in traced for name, values in one.otherwise.items()}:
        kernels = ", ".join(f"{name} {here} (planned {there})" for name, (here, there) in otherwise.items())
        notes.append(f"That engine has other kernels: {kernels}. The closed form next to the trace has them too.")
    missing = [f"{one.layout} is not traced: {one.not_traced}." for one in plan.verified if not one.traced]
    judged = "No ratio is judged. The exit code is 1 if a trace is missing, or does not fit with its own kernels."
    return [*missing, *notes, judged]


def scaling(plans: Sequence[Plan]) -> Table:
    """The best layout by the number of devices."""
    table = bare_table("hardware", "best layout", "tokens/s", "MFU", "time")
    for plan in plans:
        if plan.layouts:
            best = plan.layouts[0]
            speed, mfu = show_whole(best.predicted_tokens_per_second), show_ratio(best.predicted_mfu)
            table.add_row(plan.hardware, best.layout, speed, mfu, _time(plan))
        else:
            table.add_row(plan.hardware, "none fits", "", "", "")
    return table
