"""The words of every reason. mypy refuses a function that lacks those of a new one."""

import itertools
from collections.abc import Mapping
from typing import assert_never

from perfsuite.records import reasons
from perfsuite.records.reasons import Reason
from perfsuite.records.suspects import part_name
from perfsuite.show.text.grid_words import cells_text
from perfsuite.system.units import show, show_bytes, show_number, show_ratio, show_several, some

MOST_NAMED = 3  # tensors in a sentence: a model has hundreds


def words_of(reason: Reason) -> str:
    """The reason as the end of a sentence, or as a sentence."""
    if isinstance(reason, reasons.OfNumbers):
        return _of_numbers(reason)
    if isinstance(reason, reasons.OfSteps):
        return _of_steps(reason)
    if isinstance(reason, reasons.OfTimes):
        return _of_times(reason)
    if isinstance(reason, reasons.OfPairs):
        return _of_pairs(reason)
    if isinstance(reason, reasons.OfOutcomes):
        return _of_outcomes(reason)
    return _of_baselines(reason)


def _of_numbers(reason: reasons.OfNumbers) -> str:
    match reason:
        case reasons.Wrong(most=most, parts=parts):
            explained = f"and rounding explains {most:g}" if most else "and must be 0"
            said = f"{reason.title} is {show(reason.value, reason.unit)}, {explained}"
            return f"{said}; {most_in(parts)}" if parts else said
        case reasons.OtherRelease(release=release):
            return f"counts depend on the release: {release.name} {release.before} -> {release.after}"
        case reasons.BadNumber(finite=finite):
            whose = "the measurement" if reason.measured else "the baseline"
            return f"{whose} has {'a time that is not positive' if finite else 'a number that is not finite'}"
        case reasons.Absent(measured=measured):
            return "the baseline lacks it" if measured else "not measured"
        case reasons.Uncounted(message=message):
            return f"cannot be counted: {message}"
        case reasons.Unrepeated(unit=unit, other=other):
            return f"another launch had {show(other, unit)}, so only a much worse one is red"
        case reasons.OtherTraining(title=title):
            return f"less work, but another training: {title} moved with it"
        case reasons.NoMetric():
            return "no Metric is defined, so nothing was compared"
        case reasons.NothingGrew(part=part, part_bytes=size):
            return f"no category grew; most of it {part_name(part)}, {show_bytes(size)}"
        case reasons.Own(facts=facts):
            numbers = {name: show_number(fact) if isinstance(fact, float) else fact for name, fact in facts.items()}
            return ", ".join(f"{name.replace('_', ' ')} {fact}" for name, fact in numbers.items())
    assert_never(reason)


def most_in(shares: Mapping[str, float]) -> str:
    """``most in lm_head.weight (0.5), wte.weight (0.2) and 40 more``: the first ones."""
    named = [f"{name} ({share:.2g})" for name, share in itertools.islice(shares.items(), MOST_NAMED)]
    more = len(shares) - len(named)
    return f"most in {', '.join(named)}" + (f" and {more} more" if more else "")


def _of_steps(reason: reasons.OfSteps) -> str:
    match reason:
        case reasons.FewerSamples(measured=measured, recorded=recorded):
            return f"only {measured} of the baseline's {recorded} steps were measured"
        case reasons.StepDiffers(first=first, differing=differing, steps=steps):
            said = f"differs in step {first} first, in {differing} of {steps} steps"
            return "; ".join([said, *origin_texts(reason)])
        case reasons.NoCommonStep():
            return "no step in common"
        case reasons.SomeSteps(median=median):
            return f"the mean of all steps; the median step {100 * median:+.1f} %"
        case reasons.OtherStrategy():
            return "two strategies compute differently"
        case reasons.BySteps():
            return "the trial compared single steps"
    assert_never(reason)


_DIFFERS = {
    "sample_order": "the order of samples differs",
    "first_batches": "the batch differs",
    "first_inputs": "the model's inputs differ",
    "initial_weights": "initial weights differ",
}


def origin_texts(reason: Reason | None) -> list[str]:
    """``the batch differs: labels``, of all that began differently."""
    origins = reason.origins if isinstance(reason, reasons.StepDiffers) else []
    return [_origin_text(origin) for origin in origins]


def _origin_text(one: reasons.Origin) -> str:
    since = "" if one.since is None else f" from step {one.since}"
    names = f": {some(list(filter(None, one.names)), MOST_NAMED)}" if any(one.names) else ""
    return f"{_DIFFERS[one.metric]}{since}{names}"


def _of_times(reason: reasons.OfTimes) -> str:
    match reason:
        case reasons.Capped():
            return "memory is capped"
        case reasons.NoTimes():
            return "no times from this machine: the baseline has none"
        case reasons.Drifted(by=by, since=since):
            return f"{show_ratio(by)} slower over the last runs than over the first, since {since[:10]}"
        case reasons.NotRuledOut(runs=runs, change=change):
            return f"{_runs(runs)} cannot rule out {show_ratio(change)}"
        case reasons.Slower(runs=runs, own_code=own, loads=loads):
            said = f"slower than {_runs(runs)}"
            if own:
                return f"{said}, and perfsuite's code {own.before} -> {own.after}"
            load = f", {'but busy: ' * loads.busy}load {loads.here:.1f} against {loads.recorded:.1f}" if loads else ""
            return f"{said}; same machine{load}"
    return f"no times from this machine: {other_machine_words(reason)}"


def other_machine_words(reason: reasons.OtherMachine) -> str:
    """How a machine differs, alone."""
    match reason:
        case reasons.OtherGpus():
            recorded, here = _gpus(reason.recorded, reason.recorded_links), _gpus(reason.here, reason.here_links)
            return f"recorded on other GPUs ({recorded}), here: {here}"
        case reasons.NoIdentity():
            return "this machine has no identity: its cache folder cannot be written"
        case reasons.OtherComputer(device=device, cores=cores, identity=identity):
            return f"recorded on another machine ({device}, {cores} cores, {identity})"
        case reasons.OtherDriver(recorded=driver, here=driver_here):
            return f"recorded with driver {driver or 'none'}, here is {driver_here or 'none'}"
    assert_never(reason)


def _gpus(names: list[str], links: str) -> str:
    """``GPU-8932f937 and GPU-01aa77c3 by NV18``."""
    return " and ".join(names) + (f" by {links}" if links else "")


def _runs(runs: int) -> str:
    return "the one run of the baseline" if runs == 1 else f"the baseline's {runs} runs"


def _of_pairs(reason: reasons.OfPairs) -> str:
    match reason:
        case reasons.NoInterval():
            return "no trial asked for its pairs"
        case reasons.WithGroup(kind=kind, name=name, cells=cells, own=own, pairs=pairs):
            return f"{cells_text(kind, name, cells)}; {show_several(pairs, 'own pair')}: {100 * own:+.1f} %"
        case reasons.NothingShown(change=change):
            return f"no difference shown, but {show_ratio(change)} is not ruled out"
        case reasons.Undecided(worse=worse, few_pairs=few_pairs):
            doubt = "too few pairs decide that" if few_pairs else "perhaps too little to matter"
            return f"{'worse' if worse else 'better'}, but {doubt}"
        case reasons.BeyondHarmless(change=change):
            return f"all beyond the {show_ratio(change)} that need not be reported"
        case reasons.NotAllTried():
            return "a change that cannot be tried here may be slower"
    assert_never(reason)


def _of_outcomes(reason: reasons.OfOutcomes) -> str:
    match reason:
        case reasons.InWords(message=message):
            return message
        case reasons.NoBaseline(outcome=outcome):
            said = f", and it ran out of memory ({_ending(reason)}: {_message(reason)})" if outcome == "oom" else ""
            return f"there is no baseline{said}"
        case reasons.Ended(outcome=outcome, recorded=recorded):
            if recorded in (None, outcome):
                return f"{_ending(reason)}{', like its baseline' if recorded else ''}: {_message(reason)}"
            return f"{recorded} -> {_ending(reason)}" + (f": {reason.message}" if reason.message else "")
        case reasons.SideFailed(side=side, message=message):
            return f"{side} failed: {message}"
        case reasons.SidesEnded(a="unsupported", b="unsupported", message=message):
            return f"nothing was compared, since neither side can run it: {message}"
        case reasons.SidesEnded(a=a, b=b, message=message):
            return f"{a} -> {b}: {message}"
    assert_never(reason)


def _ending(reason: reasons.Ended) -> str:
    """``oom, at least 1.06 GiB missing, most of it activations, 900.00 MiB``."""
    if reason.missing_bytes is None:
        return reason.outcome
    where = f", most of it {part_name(reason.part)}, {show_bytes(reason.part_bytes)}" if reason.part else ""
    return f"oom, at least {show_bytes(reason.missing_bytes)} missing{where}"


def _message(reason: reasons.Ended) -> str:
    return reason.message or "no reason was recorded."


def _of_baselines(reason: reasons.OfBaselines) -> str:
    match reason:
        case reasons.NoRealGpu():
            return "fits, and there is no baseline of a real GPU"
        case reasons.OtherKernels(kernels=kernels):
            return f"there are no baselines for {kernels} kernels: record them with --perf-update=new"
        case reasons.OtherCell(cell=cell):
            return f"the baseline is that of {cell}."
        case reasons.UnknownOutcome(outcome=outcome):
            return f"the baseline has an outcome {outcome!r}: delete it."
        case reasons.OtherRanks(here=here, recorded=recorded):
            return f"{here} ranks against the baseline's {recorded}."
        case reasons.FewerSteps(here=here, recorded=recorded):
            return f"{here} timed steps against the baseline's {recorded}: give --perf-steps={recorded} or more."
        case reasons.LessWarmup(here=here, recorded=recorded):
            return f"{here} warm-up steps against the baseline's {recorded}: give -o perf_warmup={recorded} or more."
    assert_never(reason)
