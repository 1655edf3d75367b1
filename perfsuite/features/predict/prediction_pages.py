"""The pages of what was predicted: the memory of one cell or several, and the plan of a training."""

from collections.abc import Sequence
from typing import Final

from rich.table import Table as TextTable

from perfsuite.features.predict import memory_needs as memory
from perfsuite.features.predict import plan_table as texts
from perfsuite.features.predict.memory_table import bar, headroom, largest, parts
from perfsuite.features.predict.predicted_time import meaning
from perfsuite.features.predict.prediction import Plan, Prediction
from perfsuite.features.predict.sizes import Size
from perfsuite.show.html.axes import SECONDS, Quantity
from perfsuite.show.html.charts import Bar, Stack, bars, stacked_bars
from perfsuite.show.html.document import Document, Section, Table, Tone
from perfsuite.show.html.markup import Html
from perfsuite.system import units

PREDICTED: Final = "predicted"


def memory_page(prediction: Prediction, explanation: Sequence[str]) -> Document:
    """One cell: what it needs against the capacity, its step, and what is alive at the peak."""
    fits = prediction.outcome == "fits"
    verdict = bar(prediction)[1 if prediction.capacity_bytes is not None else 0]
    step = [memory.timeline(prediction)] if prediction.curve else []
    sections = [
        Section(
            heading="At the peak",
            charts=[memory.needs([prediction.cell], [prediction]), *step],
            tables=[Table.of(parts(prediction))],
        ),
        Section(
            heading="The largest tensors at the peak", tables=[Table.of(largest(prediction, len(prediction.held)))]
        ),
    ]
    if explanation:
        sections.insert(1, Section(heading="How the figure follows", sentences=explanation))
    return Document(
        title=prediction.cell,
        verdict=f"{verdict[0].upper()}{verdict[1:]}.",
        facts=[_versions(prediction)] if prediction.versions else [],
        tone="green" if fits else "red",
        kind=PREDICTED,
        sections=sections,
    )


def cells_page(
    title: str,
    verdict: str,
    names: Sequence[str],
    found: Sequence[Size],
    table: TextTable,
    notes: Sequence[str] = (),
) -> Document:
    """Several cells: what each needs, stacked, the table of the terminal, and the sentences below it."""
    worst: Tone = "green" if any(headroom(one) is None or (headroom(one) or 0) >= 0 for one in found) else "red"
    shown = Section(heading="What each needs", charts=[memory.needs(names, found)], tables=[Table.of(table)])
    known = next((one for one in found if isinstance(one, Prediction) and one.versions), None)
    below = [Section(heading="Notes", sentences=notes)] if notes else []
    return Document(
        title=title,
        verdict=verdict,
        facts=[_versions(known)] if known else [],
        tone=worst,
        kind=PREDICTED,
        sections=[shown, *below],
    )


def plan_page(chosen: Plan, plans: Sequence[Plan]) -> Document:
    """The best layouts of a training, where the best one's step goes, and how it scales."""
    title, question, basis, *answer = (line.strip() for line in texts.summary(chosen))
    verdict, facts = " ".join(answer), [f"{basis[0].upper()}{basis[1:]}."]
    if chosen.layouts:
        best, cost, speed = answer[-3:]
        verdict, facts = f"{best[0].upper()}{best[1:]}, {cost}.", [*facts, f"{speed}."]
    sections = []
    if chosen.layouts:
        first = chosen.layouts[0]
        layouts = [
            Bar(
                label=layout.layout,
                value=layout.predicted_step_seconds,
                low=layout.low_seconds,
                high=layout.high_seconds,
                kind=PREDICTED,
            )
            for layout in chosen.layouts
        ]
        causes = Stack(
            label=first.layout,
            parts={name: size for name, size in first.predicted_parts.items() if size},
            kind=PREDICTED,
        )
        sections = [
            Section(
                heading="Layouts, fastest first",
                sentences=[
                    "Bars are predicted steps. Lines hold 90 % of the measurements of their regime.",
                    meaning(first.regime),
                ],
                charts=[bars("Predicted step of each layout", layouts, Quantity("step", units.SECONDS))],
                tables=[Table.of(texts.choices(chosen))],
            ),
            Section(
                heading="The step of the best layout",
                charts=[stacked_bars("Predicted step by cause", [causes], SECONDS)],
                tables=[Table.of(texts.breakdown(chosen))],
            ),
        ]
    if chosen.verified:
        sections.append(
            Section(
                heading="Memory by a trace",
                tables=[Table.of(texts.verified(chosen))] if any(one.traced for one in chosen.verified) else [],
                sentences=texts.verified_notes(chosen),
            )
        )
    if len(plans) > 1:
        sections.append(
            Section(
                heading="By the number of devices", charts=[_scaling(plans)], tables=[Table.of(texts.scaling(plans))]
            )
        )
    return Document(
        title=title.partition(":")[0],
        verdict=verdict,
        facts=[f"{question}.", *facts],
        tone="green" if chosen.layouts else "red",
        kind=PREDICTED,
        sections=sections,
    )


def _scaling(plans: Sequence[Plan]) -> Html:
    """Tokens per second of the best layout by hardware."""
    shown = [
        Bar(
            label=plan.hardware,
            value=plan.layouts[0].predicted_tokens_per_second if plan.layouts else None,
            text="" if plan.layouts else f"none fits: {texts.lacking(plan)}",
            kind=PREDICTED,
        )
        for plan in plans
    ]
    return bars("Predicted tokens per second", shown, Quantity("tokens/s", units.WHOLE))


def _versions(prediction: Prediction) -> str:
    return f"Traced with {', '.join(f'{name} {text}' for name, text in prediction.versions.items())}."
