"""What ``perfsuite prove`` prints: each relation with what is wrong, or with what was tried."""

from collections.abc import Mapping

from perfsuite.features.prove.proving import FAILED
from perfsuite.features.prove.relation import Judged, Proven, Relation, RelationOutcome, Remark
from perfsuite.system.units import show_part

SHOWN = {RelationOutcome.BROKEN: "BROKEN"}
COMMON = {FAILED: "the script failed: {subject}"}


def render_proven(proven: Proven, relations: Mapping[str, Relation]) -> str:
    """Broken ones first, then those that hold, then those that were not tried."""
    order = [RelationOutcome.BROKEN, RelationOutcome.HOLDS, RelationOutcome.UNTRIED]
    counts = {outcome: sum(relation.outcome is outcome for relation in proven.relations) for outcome in order}
    tried = len(proven.relations) - counts[RelationOutcome.UNTRIED]
    said = (
        f"{show_part(counts[RelationOutcome.BROKEN], tried, 'relation', 'is', 'are')} broken"
        if tried
        else "nothing was tried"
    )
    lines = [f"{proven.cell}: {said}"]
    width = max(len(relation.relation) for relation in proven.relations)
    for relation in sorted(proven.relations, key=lambda relation: order.index(relation.outcome)):
        lines += _lines(relation, relations[relation.relation], width)
    return "\n".join(lines)


def _lines(judged: Judged, relation: Relation, width: int) -> list[str]:
    status = SHOWN.get(judged.outcome, str(judged.outcome))
    says = COMMON | relation.says
    first, *others = [say(remark, says) for remark in judged.remarks]
    blank = " " * (width + 15)
    lines = [f"  {judged.relation:{width}s}  {status:9s}  {first}", *(blank + other for other in others)]
    return lines + [f"{blank}aside: {say(one, says)}" for one in judged.aside]


def say(remark: Remark, says: Mapping[str, str]) -> str:
    """One remark as a sentence, with the user's line at its end."""
    more = f" and {remark.more:,} more" if remark.more else ""
    number, expected = (_shown(value) for value in (remark.number, remark.expected))
    fields = {"subject": remark.subject + more, "other": remark.other, "step": remark.step}
    text = says[remark.what].format(number=number, expected=expected, line=remark.line, **fields)
    return f"{text} ({remark.line})" if remark.line and "{line}" not in says[remark.what] else text


def _shown(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
