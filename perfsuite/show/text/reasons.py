"""The words of every reason: one entry for each member of Because, of the facts that it comes with."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from perfsuite.records.suspects import part_name
from perfsuite.records.verdict import Because, Reason
from perfsuite.show.text.grid_words import cells_text
from perfsuite.units import show, show_bytes, show_number, show_ratio, show_several

Facts = Mapping[str, Any]
MOST_NAMED = 3  # tensors in a sentence: a model has hundreds


def words_of(reason: Reason) -> str:
    """The reason as the end of a sentence, or as a sentence. In a stranger's report, its facts may be others."""
    said = _WORDS[reason.because]
    try:
        return said.format_map(reason.facts) if isinstance(said, str) else said(reason.facts)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return f"{reason.because}, with other facts than are known here"


def _wrong(facts: Facts) -> str:
    value, most = f"{facts['title']} is {show(facts['value'], facts['unit'])}", facts["most"]
    said = f"{value}, and rounding explains {most:g}" if most else f"{value}, and must be 0"
    return f"{said}; {most_in(facts['parts'])}" if facts["parts"] else said


def most_in(shares: Mapping[str, float]) -> str:
    """``most in lm_head.weight (0.5), wte.weight (0.2) and 40 more``: the first ones."""
    named = [f"{name} ({share:.2g})" for name, share in itertools.islice(shares.items(), MOST_NAMED)]
    more = len(shares) - len(named)
    return f"most in {', '.join(named)}" + (f" and {more} more" if more else "")


def _absent(facts: Facts) -> str:
    return "the baseline lacks it" if facts["measured"] else "not measured"


def _whose(facts: Facts) -> str:
    return "the measurement" if facts["measured"] else "the baseline"


def _runs(facts: Facts) -> str:
    return "the one run of the baseline" if facts["runs"] == 1 else f"the baseline's {facts['runs']} runs"


def _other_machine(facts: Facts) -> str:
    if facts["what"] == "gpus":
        sides = (_gpus(facts[side], facts[f"{side}_links"]) for side in ("recorded", "here"))
        return "recorded on other GPUs ({}), here: {}".format(*sides)
    if facts["what"] == "no identity":
        return "this machine has no identity: its cache folder cannot be written"
    if facts["what"] == "driver":
        return f"recorded with driver {facts['recorded'] or 'none'}, here is {facts['here'] or 'none'}"
    return f"recorded on another machine ({facts['device']}, {facts['cores']} cores, {facts['identity']})"


def _gpus(names: list[str], links: str) -> str:
    """``GPU-8932f937 and GPU-01aa77c3 by NV18``."""
    return " and ".join(names) + (f" by {links}" if links else "")


def _slower(facts: Facts) -> str:
    said = f"slower than {_runs(facts)}; same machine"
    if "load" not in facts:
        return said
    busy = "but busy: " if facts["busy"] else ""
    return f"{said}, {busy}load {facts['load']:.1f} against {facts['recorded_load']:.1f}"


def _drifted(facts: Facts) -> str:
    return f"{show_ratio(facts['by'])} slower over the last runs than over the first, since {facts['since'][:10]}"


def _perhaps(facts: Facts) -> str:
    return f"{'worse' if facts['worse'] else 'better'}, but perhaps too little to matter"


def _nothing_grew(facts: Facts) -> str:
    return f"no category grew; most of it {part_name(facts['part'])}, {show_bytes(facts['bytes'])}"


def _ending(facts: Facts) -> str:
    """``oom, at least 1.06 GiB missing, most of it activations, 900.00 MiB``."""
    if "missing_bytes" not in facts:
        return str(facts["outcome"])
    where = f", most of it {part_name(facts['part'])}, {show_bytes(facts['part_bytes'])}" if "part" in facts else ""
    return f"oom, at least {show_bytes(facts['missing_bytes'])} missing{where}"


def _message(facts: Facts) -> str:
    return str(facts["message"] or "no reason was recorded.")


def _no_baseline(facts: Facts) -> str:
    if facts["outcome"] != "oom":
        return "there is no baseline"
    return f"there is no baseline, and it ran out of memory ({_ending(facts)}: {_message(facts)})"


def _outcomes(facts: Facts) -> str:
    if facts["recorded"] == facts["outcome"]:
        return f"{_ending(facts)}, like its baseline: {_message(facts)}"
    return f"{facts['recorded']} -> {_ending(facts)}" + (f": {facts['message']}" if facts.get("message") else "")


def _predicted(facts: Facts) -> str:
    """Of a prediction: what it needs, or how its outcome differs from the recorded one; empty if it does not."""
    needs = f"it needs {show_bytes(facts['needed_bytes'])}"
    if "recorded" not in facts:
        return f"no predicted baseline; {needs}."
    change = _change_of_outcome(facts)
    return f"{change}; {needs}" if change else ""


def _change_of_outcome(facts: Facts) -> str:
    if facts.get("recorded") == facts.get("outcome"):
        return ""
    missing = f", {show_bytes(facts['missing_bytes'])} missing" if "missing_bytes" in facts else ""
    return f"{facts['recorded']} -> {facts['outcome']}{missing}"


def _not_predicted(facts: Facts) -> str:
    said = f"cannot be predicted: {facts['message']}"
    return f"{said} Its baseline says {facts['recorded']}." if "recorded" in facts else said


def _own(facts: Facts) -> str:
    """A user's own rule names its facts as it likes."""
    numbers = {name: show_number(fact) if isinstance(fact, float) else fact for name, fact in facts.items()}
    return ", ".join(f"{name.replace('_', ' ')} {fact}" for name, fact in numbers.items())


_WORDS: dict[Because, str | Callable[[Facts], str]] = {
    Because.WRONG: _wrong,
    Because.OTHER_RELEASE: "counts depend on the release: {name} {before} -> {after}",
    Because.NOT_FINITE: lambda facts: f"{_whose(facts)} has a number that is not finite",
    Because.ABSENT: _absent,
    Because.UNCOUNTED: "cannot be counted: {message}",
    Because.UNREPEATED: lambda facts: (
        f"another launch had {show(facts['other'], facts['unit'])}, so only a much worse one is red"
    ),
    Because.OTHER_TRAINING: "less work, but another training: {title} moved with it",
    Because.NO_METRIC: "no Metric defines it",
    Because.FEWER_SAMPLES: "only {measured} of the baseline's {recorded} steps were measured",
    Because.STEP_DIFFERS: "differs in step {first} first, in {differing} of {steps} steps",
    Because.NO_COMMON_STEP: "no step in common",
    Because.CAPPED: "memory is capped",
    Because.NO_TIMED_STEP: "the measurement has no timed steps",
    Because.NOT_POSITIVE: lambda facts: f"{_whose(facts)} has a time that is not positive",
    Because.OTHER_MACHINE: lambda facts: f"no times from this machine: {_other_machine(facts)}",
    Because.NO_TIMES: "no times from this machine: the baseline has none",
    Because.DRIFTED: _drifted,
    Because.NOT_RULED_OUT: lambda facts: f"{_runs(facts)} cannot rule out {show_ratio(facts['change'])}",
    Because.SLOWER: _slower,
    Because.SLOWER_OWN_CODE: lambda facts: (
        f"slower than {_runs(facts)}, and perfsuite's code {facts['before']} -> {facts['after']}"
    ),
    Because.WITH_GROUP: lambda facts: (
        f"{cells_text(str(facts['kind']), str(facts['name']), facts['cells'])}; "
        f"{show_several(facts['pairs'], 'own pair')}: {100 * facts['own']:+.1f} %"
    ),
    Because.FEW_PAIRS: "{pairs} pairs, but an interval needs {least}",
    Because.TOO_FEW_PAIRS: lambda facts: f"{'worse' if facts['worse'] else 'better'}, but too few pairs decide that",
    Because.NOTHING_SHOWN: lambda facts: f"no difference shown, but {show_ratio(facts['change'])} is not ruled out",
    Because.PERHAPS_TOO_LITTLE: _perhaps,
    Because.BEYOND_HARMLESS: lambda facts: f"all beyond the {show_ratio(facts['change'])} that need not be reported",
    Because.SOME_STEPS: lambda facts: f"the mean of all steps; the median step {100 * facts['median']:+.1f} %",
    Because.NOT_ALL_TRIED: "a change that cannot be tried here may be slower",
    Because.BY_STEPS: "the trial compared single steps",
    Because.NOTHING_GREW: _nothing_grew,
    Because.OWN: _own,
    Because.MESSAGE: "{message}",
    Because.ENDED: lambda facts: f"{facts['outcome']}: {_message(facts)}",
    Because.NO_BASELINE: _no_baseline,
    Because.NO_REAL_GPU: "fits, and there is no baseline of a real GPU",
    Because.OTHER_KERNELS: "there are no baselines for {kernels} kernels: record them with --perf-update=new",
    Because.OTHER_CELL: "the baseline is that of {cell}.",
    Because.UNKNOWN_OUTCOME: "the baseline has an outcome {outcome!r}: delete it.",
    Because.OTHER_RANKS: "{here} ranks against the baseline's {recorded}.",
    Because.FEWER_STEPS: (
        "{here} timed steps against the baseline's {recorded}: give --perf-steps={recorded} or more."
    ),
    Because.LESS_WARMUP: (
        "{here} warm-up steps against the baseline's {recorded}: give -o perf_warmup={recorded} or more."
    ),
    Because.NO_METRIC_DEFINED: "no metric is defined, so nothing was compared",
    Because.OUTCOMES: _outcomes,
    Because.SIDES: "{recorded} -> {outcome}: {message}",
    Because.SIDE_FAILED: "{side} failed: {message}",
    Because.NEITHER_SIDE: "nothing was compared, since neither side can run it: {message}",
    Because.PREDICTED: _predicted,
    Because.NOT_PREDICTED: _not_predicted,
}


def predicted_outcome_words(reason: Reason) -> str:
    """How a prediction's outcome differs from the recorded one, alone; empty if it does not."""
    return _change_of_outcome(reason.facts)


def why_other_machine_words(reason: Reason) -> str:
    """How a machine differs, alone."""
    return _other_machine(reason.facts)
