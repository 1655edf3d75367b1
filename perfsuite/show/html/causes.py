"""One cause over many cells: what moved is grouped by metric, direction, part and what changed, and then ranked."""

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from perfsuite.catalog.cell_id import CellId
from perfsuite.compare.hurts import Hurt, hurt_of, order_of
from perfsuite.records.change import Change, How
from perfsuite.records.reasons import NotAllTried, Undecided, WithMessage
from perfsuite.records.result import CellResult
from perfsuite.records.suspects import part_name
from perfsuite.records.verdict import OPEN, Line, Move, Status
from perfsuite.show.html.moved import Moved, in_quarantine, tone_of
from perfsuite.show.text import line_words, trial_words, verdict_words
from perfsuite.show.text.markdown import is_red
from perfsuite.show.text.open_cells import NEVER, is_unexplained
from perfsuite.show.text.reasons import words_of
from perfsuite.system.units import BYTES, show_several

NUMBERS = re.compile(r"\d[\d,.]*")  # in what ranks and Python say: the same in many cells, but for its numbers
KNOWN = (How.ONLY, How.ALONE, How.TOGETHER)
_SHARED = 0.75  # of the cells of a cause must have an operator that is named as suspect


@dataclass(frozen=True, kw_only=True)
class ShownCause:
    """Cells that moved alike. ``moved`` is the largest effect of each cell, largest first; ``also`` are the same for
    other metrics of these cells. Cells without numbers have a ``reason``.
    """

    cells: Sequence[CellResult]
    status: Status
    changed: tuple[Change, ...]
    moved: Sequence[Moved] = ()
    also: Sequence[Sequence[Moved]] = ()
    reason: str = ""

    @property
    def is_red(self) -> bool:
        """Whether it makes its cells red: an open line of a red cell does not, and none that does not matter."""
        return self.status not in OPEN and not self.is_slight and any(map(is_red, self.cells))

    @property
    def is_slight(self) -> bool:
        """Whether it differs by less than matters."""
        return self.status == "immaterial"

    @property
    def quarantined(self) -> bool:
        """Whether its cells are: a cause has none that are, or nothing else."""
        return in_quarantine(self.cells[0])

    @property
    def title(self) -> str:
        """``peak memory +6.9 % to +7.1 % at train.py:14 in 14 cells``."""
        count = show_several(len(self.cells), "cell")
        if not self.moved:
            return f"{count}: {self.reason}"
        line = self.moved[0].line
        if line.status in OPEN:
            shown = "nothing shown" if line.interval else "slower without a change" if is_unexplained(line) else NEVER
            return f"{line.title}: {shown} in {count}"
        lines = [move.line for move in self.moved]
        said = verdict_words.leak_text(lines) or f"{line.title} {spread(self.moved)}"
        return f"{said}{verdict_words.at_text(lines)} in {count}"

    @property
    def doubt(self) -> str:
        """Why nothing was shown: ``No difference was shown: -4.1 % to +71.2 %, 16 pairs, includes 0.``; empty if one
        was.
        """
        if not self.moved or self.moved[0].line.status not in OPEN:
            return ""
        line = self.moved[0].line
        whose = f" in {self.moved[0].cell}" if len(self.moved) > 1 else ""
        if is_unexplained(line):
            return f"A change of {spread(self.moved)}{whose}: {line_words.note_text(line)}. There is nothing to try."
        found = line.interval
        if found:
            interval = f"he interval of {show_several(found.pairs, 'pair')}{whose} is {line_words.range_text(found)}"
            if isinstance(line.reason, NotAllTried):
                return f"T{interval}, but {words_of(line.reason)}."
            if not found.low <= 1 <= found.high:
                few = isinstance(line.reason, Undecided) and line.reason.few_pairs
                doubt = "too few pairs decide it" if few else "perhaps too little to matter"
                return f"T{interval}: a difference, but {doubt}."
            said = f"No difference was shown: t{interval}, which includes 0."
            both = " → ".join(line_words.sides_text(line))
            return f"{said} Such a change is not ruled out either. The two sides: {both}."
        return f"A change of {spread(self.moved)} is suspected, and no trial has confirmed it."

    @property
    def others(self) -> list[str]:
        """The other metrics that moved in its cells: ``Also a, b and c +1.0 % in the same cells (regressed)``, one
        sentence for those that moved alike.
        """
        alike: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for group in self.also:
            cells = "the same cells" if len(group) == len(self.cells) else f"{len(group)} of them"
            effect = "" if group[0].line.status in OPEN else f" {spread(group)}"
            alike[effect, cells, group[0].line.status].append(group[0].line.title)
        alone = len(self.cells) == 1
        return [
            f"Also {', '.join(titles)}{effect}{'' if alone else f' in {cells}'} ({status})."
            for (effect, cells, status), titles in alike.items()
        ]

    @property
    def blamed(self) -> list[str]:
        """What the trials of its cells say about the cause, each sentence once."""
        trials = [cell.verdict.trial for cell in self.cells if cell.verdict.trial]
        blames = [trial_words.cause_text(cause) for trial in trials for cause in trial.causes if cause.how in KNOWN]
        return [f"{text} ({count} trial{'s' * (count > 1)})" for text, count in Counter(blames).most_common()]

    @property
    def suspects(self) -> list[str]:
        """The operators that the evidence of most of its cells names, by how many do, with the part that moved and by
        how much: ``aten::empty_like in (backward), communication buffers +177.00 KiB to +133.89 MiB``.
        """
        lines = [move.line for move in self.moved]
        counts = Counter(name for line in lines for name in operators(line))
        names = [name for name, count in counts.most_common(3) if count >= _SHARED * len(lines)]
        places = {name: {place_of(line, name) for line in lines} - {""} for name in names}
        named = [f"{name} {places[name].pop()}" if len(places[name]) == 1 else name for name in names]
        sizes = sizes_of(self.moved) if named else ""
        return [*named[:-1], f"{named[-1]}; {part_name(part_of(lines[0]))} {sizes}"] if sizes else named

    @property
    def rank(self) -> tuple[bool, bool, int, float, float, int]:
        """Red causes first, then what hurts most, the largest effect over its own noise, the most cells."""
        hurt = min((hurt_of(move.line) for move in self.moved), default=Hurt.ENDS)
        best = max((move.score for move in self.moved), default=0.0)
        most = max((abs(move.change or 0) for move in self.moved), default=0.0)
        return not self.is_red, tone_of(self.status) != "red", hurt, -best, -most, -len(self.cells)


def causes(moved: Sequence[Moved], results: Sequence[CellResult]) -> list[ShownCause]:
    """The causes of a run, those that matter most first. ``results`` are all its cells."""
    groups: dict[tuple[object, ...], list[Moved]] = defaultdict(list)
    for move in moved:
        changed = tuple(move.result.verdict.changed)
        key = (
            *(move.line.metric, move.line.status, (move.change or 0) > 0, part_of(move.line), changed),
            in_quarantine(move.result),
        )
        groups[key].append(move)
    ordered = [sorted(group, key=lambda move: (-move.score, -_effect(move))) for group in groups.values()]
    ordered.sort(key=_order)
    taken: list[list[list[Moved]]] = []
    with_cell: dict[str, list[list[list[Moved]]]] = defaultdict(list)  # of those that are taken
    for group in ordered:
        home = next((other for other in with_cell[group[0].cell] if _inside(group, other[0])), None)
        if home:
            home.append(group)
        else:
            taken.append([group])
            for cell in {move.cell for move in group}:
                with_cell[cell].append(taken[-1])
    every = [_cause(groups_) for groups_ in taken] + _without_numbers(results)
    return sorted(every, key=lambda cause: cause.rank)


def _effect(move: Moved) -> float:
    """The size of the change, as exactly as a reader sees it: cells that moved alike keep their order."""
    return float(f"{abs(move.change or 0):.3g}")


def _order(group: Sequence[Moved]) -> tuple[bool, tuple[bool, int, int], int, float]:
    """Red groups, then what hurts most, then those of most cells, then the largest effects."""
    first = group[0]
    return not any(is_red(move.result) for move in group), order_of(first.line)[:3], -len(group), -first.score


def spread(moved: Sequence[Moved]) -> str:
    """``+7.0 %``, or ``+6.9 % to +7.1 %`` if the cells differ."""
    known = sorted((move for move in moved if move.change is not None), key=lambda move: abs(move.change or 0))
    if not known and moved[0].line.compared:
        return " → ".join(line_words.sides_text(moved[0].line))  # from 0, no share is known
    return " to ".join(dict.fromkeys(line_words.change_text(move.line) for move in (known[:1] + known[-1:])))


def part_of(line: Line) -> str:
    """The part that moved most; empty if it is unknown."""
    return line.moves[0].part if line.moves else ""


def place_of(line: Line, operator: str) -> str:
    """``at`` the user's line, or ``in`` the module or phase, where the operator moved; empty if it is unknown."""
    move = next((move for move in line.moves if _name(move) == operator), None)
    if move is None:
        return ""
    return f"at {move.line}" if move.line else f"in {move.module}" if move.module else ""


def sizes_of(moved: Sequence[Moved]) -> str:
    """``+177.00 KiB to +133.89 MiB``: by how much the part of the first line moved, over the cells."""
    part = part_of(moved[0].line)
    sizes = [move.line.moves[0].by for move in moved if part and part_of(move.line) == part]
    if not sizes or moved[0].line.metric != "peak_memory_bytes":
        return ""
    return " to ".join(dict.fromkeys(line_words.signed(size, BYTES) for size in (min(sizes), max(sizes))))


def operators(line: Line) -> list[str]:
    """The operators that the evidence names, without their modules and sizes."""
    return list(dict.fromkeys(_name(move) for move in line.moves if move.operator))


def _name(move: Move) -> str:
    """An operator of torch, or a line of Python without its number."""
    return move.operator if "::" in move.operator else NUMBERS.sub("#", move.operator)


def _inside(group: Sequence[Moved], other: Sequence[Moved]) -> bool:
    """Whether it is another effect of the same cause: the same change, in cells that the other has too."""
    cells, others = {move.cell for move in group}, {move.cell for move in other}
    same = group[0].result.verdict.changed == other[0].result.verdict.changed
    return same and cells <= others and tone_of(group[0].line.status) == tone_of(other[0].line.status)


def _cause(groups: Sequence[Sequence[Moved]]) -> ShownCause:
    first = groups[0]
    cells = list({move.cell: move.result for move in first}.values())
    return ShownCause(
        cells=cells,
        status=first[0].line.status,
        changed=tuple(first[0].result.verdict.changed),
        moved=first,
        also=groups[1:],
    )


def _without_numbers(results: Sequence[CellResult]) -> list[ShownCause]:
    """Cells that are not green and have no line that moved: failed, missing, undecided; alike if their reason is."""
    groups: dict[tuple[str, type, str, bool], list[CellResult]] = defaultdict(list)
    for result in results:
        verdict = result.verdict
        if verdict.status in (Status.OK, Status.IMMATERIAL, Status.UNSUPPORTED) or any(
            tone_of(line.status)
            for line in verdict.lines
            if line.status not in (Status.OK, Status.IMMATERIAL, Status.NOT_COMPARED)
        ):
            continue
        message = verdict.reason.message if isinstance(verdict.reason, WithMessage) else ""
        groups[verdict.status, type(verdict.reason), NUMBERS.sub("#", message), in_quarantine(result)].append(result)
    return [
        ShownCause(
            cells=group,
            status=group[0].verdict.status,
            changed=tuple(group[0].verdict.changed),
            reason=verdict_words.summary(group[0].verdict),
        )
        for group in groups.values()
    ]


def common(cells: Sequence[CellResult], results: Sequence[CellResult]) -> str:
    """What the cells share and others do not: ``All 14 cells with zero3, and no other.``"""
    if len(cells) < 2 or in_quarantine(cells[0]):
        return ""
    every, results = len(results), [cell for cell in results if not in_quarantine(cell)]
    if len(cells) == len(results):
        return f"Every cell of the run{' that is not in quarantine' * (len(results) < every)}."
    inside = [names_in(cell.verdict.cell) for cell in cells]
    everywhere = [names_in(cell.verdict.cell) for cell in results]
    shared = set.intersection(*map(set, inside))
    outside = {word: sum(word in cell for cell in everywhere) - len(cells) for word in shared}
    best = sorted(shared, key=lambda word: (outside[word], inside[0].index(word)))
    if not best:
        return "They share no model, engine, technique or hardware."
    first = best[0]
    if outside[first] == 0:
        return f"All {len(cells)} cells with {first}, and no other of {len(results)}."
    few = [word for word in best if outside[word] < len(results) - len(cells)]
    if not few:
        return ""
    others = f"{outside[first]} other cell{'s' * (outside[first] > 1)}"
    return f"All have {' and '.join(few[:3])}; {others} with {first} did not move."


@functools.lru_cache(20_000)
def names_in(cell: str) -> list[str]:
    """Model, engine, techniques and hardware of a cell's id."""
    one = CellId.split(cell)
    return list(dict.fromkeys([one.engine, *one.techniques, one.model, one.hardware, *one.suffixes]))
