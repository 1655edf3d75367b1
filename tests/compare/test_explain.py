"""A red exact metric explains itself: by category, operator and module."""

import msgspec
import pytest
from ab_samples import compared, launched
from explained_faults import EXPLAINED
from gate_samples import METRICS, baseline, measurement, times, with_measurement
from hypothesis import given
from hypothesis import strategies as st
from sampling import slow_unless

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.explain import explain, explain_time
from perfsuite.compare.judge import judge
from perfsuite.rank.memory.anatomy import CATEGORIES
from perfsuite.records.baseline import Baseline
from perfsuite.records.formats import FORMAT
from perfsuite.records.measurement import Launch
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import MOST, expand, fold, part_name
from perfsuite.records.verdict import Line, Status
from perfsuite.show.text.line_words import evidence_text, moves_text, note_text
from perfsuite.show.text.verdict_text import render
from perfsuite.system.units import BYTES

MIB = 2**20


def activations(**sizes):
    """A peak of activations alone, in MiB by operator and module; ``__`` is a dot, a leading number a layer's."""
    suspects = {f"activations: {name}": size * MIB for name, size in sizes.items()}
    total = sum(suspects.values())
    return Reading(value=total, parts={"activations": total}, suspects=fold(suspects))


def note(new, old):
    """What is said of a peak."""
    return moves_text(explain(METRICS[0], new, old), BYTES)


@pytest.mark.parametrize("fault", slow_unless("gathered_twice".__ne__, EXPLAINED))
def test_a_regression_names_category_operator_and_module(measure, catalog, fault):
    """The verdict on a real cell into which a fault was put."""
    cell, named = EXPLAINED[fault]
    good, bad = measure(cell), measure(cell, f"explained_faults:{fault}")
    old = Baseline(format=FORMAT, cell=cell, date="", commit="", measurement=good)
    strategy = cell.split("-")[1]
    verdict = judge(bad, old, catalog.metrics("training"), strategy=strategy)
    red = [line for line in render(verdict).splitlines() if "REGRESSED" in line]

    assert any(all(word in line for word in named) for line in red), render(verdict, bad.failure)


def test_modules_name_everything_that_is_alive_at_the_peak(measure):
    """The evidence of a small cell is whole: it sums to the peak, and each entry names a module or a phase."""
    peak = measure("gpt2_tiny-single+ckpt-cpu_x1").readings["peak_memory_bytes"]

    assert sum(peak.suspects.values()) == peak.value
    assert [suspect for suspect in peak.suspects if " @ " not in suspect] == []


def test_backward_is_told_by_the_module_whose_forward_made_it(measure):
    """Gradients are made by backward's operators, in the modules that own the parameters."""
    peak = measure("gpt2_tiny-single+ckpt-cpu_x1").readings["peak_memory_bytes"]

    assert "gradients: AddmmBackward0 @ transformer.h.1.mlp.c_fc" in peak.suspects


def test_what_is_computed_again_is_told_by_its_own_operator(measure):
    """A checkpointed layer runs inside a backward's operator, but is not named by it."""
    peak = measure("gpt2_tiny-single+ckpt-cpu_x1").readings["peak_memory_bytes"]

    assert "temporaries: aten::addmm @ transformer.h.0.mlp.c_fc" in peak.suspects


def test_what_began_to_grow_names_its_operator():
    """Nothing grew before, so there was no operator to name."""
    new = Reading(value=640, parts={"kept": 640}, suspects={"kept: aten::linear @ vit.classifier": 640})

    assert note(new, Reading(value=0)) == "kept +640 B: aten::linear in vit.classifier"


def test_layers_that_grew_alike_are_one():
    """Four layers of one size are one entry, and so are the two that grew."""
    old = activations(**{f"mul @ h.{layer}.mlp": 4 for layer in range(4)})
    new = activations(**{f"mul @ h.{layer}.mlp": 4 + (layer > 1) for layer in range(4)})

    assert old.suspects == {"activations: mul @ h.0-3.mlp": 16 * MIB}
    assert note(new, old) == "activations +2.00 MiB: mul in h.2-3.mlp"


def test_what_took_the_place_of_what_is_named():
    """A kernel that another one replaced is named with it."""
    old = activations(**{"sdpa @ h.0.attn": 4, "mul @ h.0.mlp": 4})
    new = activations(**{"softmax @ h.0.attn": 6, "mul @ h.0.mlp": 4})

    assert note(new, old) == "activations +2.00 MiB: softmax in h.0.attn +6.00 MiB, sdpa in h.0.attn -4.00 MiB"


def test_an_improvement_names_what_shrank():
    """The signs are those of the bytes."""
    old = activations(**{"mul @ h.0.mlp": 4, "add @ h.0.mlp": 4})
    new = activations(**{"mul @ h.0.mlp": 1, "add @ h.0.mlp": 2})

    assert note(new, old) == "activations -5.00 MiB: mul in h.0.mlp -3.00 MiB, add in h.0.mlp -2.00 MiB"


def test_a_baseline_without_modules_is_compared_by_operators():
    """What was recorded before modules were is told by operators alone, and moved nothing by being told otherwise."""
    old = activations(mul=8, add=4)
    new = activations(**{"mul @ h.0.mlp": 4, "mul @ h.1.mlp": 4, "add @ h.0.mlp": 6})

    assert note(new, old) == "activations +2.00 MiB: add"


def test_a_baseline_without_evidence_names_the_part_alone():
    """What it does not tell is not taken for nothing."""
    old = Reading(value=MIB, parts={"activations": MIB})

    assert note(activations(**{"mul @ h.0.mlp": 2}), old) == "activations +1.00 MiB"


def test_what_a_full_list_left_out_did_not_grow():
    """A baseline that keeps only its largest entries may have had the others as large as its smallest."""
    sizes = {f"op{number:02} @ head": 2 for number in range(MOST + 1)}
    old, new = activations(**sizes), activations(**sizes | {"op00 @ head": 5, f"op{MOST} @ head": 3})

    assert len(old.suspects) == MOST
    assert f"activations: op{MOST} @ head" not in old.suspects
    assert note(new, old).startswith("activations +4.00 MiB: op00 in head +3.00 MiB")


paths = st.lists(st.sampled_from(["h", "0", "1", "2", "7", "attn"]), min_size=1, max_size=4).map(".".join)
names = st.builds("{}: {} @ {}".format, st.sampled_from(["a", "b"]), st.sampled_from(["x", "conv2d.1"]), paths)


@given(*[st.dictionaries(st.text("a: @*.,-019", max_size=20), st.integers(0, 9), max_size=9)] * 2)
def test_no_evidence_breaks_the_explanation(after, before):
    """Whatever a file holds for evidence, the part that grew is named."""
    new, old = (Reading(value=size, parts={"a": size}, suspects=side) for size, side in ((2, after), (1, before)))

    assert note(new, old).startswith("a +1 B")


@given(st.dictionaries(names, st.integers(0, 9), max_size=40))
def test_folding_loses_nothing(sizes):
    """Folded entries can be expanded layer by layer, with the same sum."""
    folded = fold(sizes)

    assert expand(folded) == sizes
    assert sum(folded.values()) == sum(sizes.values())


def test_phases_make_up_the_step(measure):
    """Forward, backward and optimizer of a lone rank are its step, but for the way between them."""
    readings = measure("gpt2_tiny-single+ckpt-cpu_x1").readings
    phases = [readings[f"{phase}_seconds"].value for phase in ("forward", "backward", "optimizer")]

    assert min(phases) > 0
    assert sum(phases) <= 1.2 * max(readings["step_time_seconds"].samples)


def phases_text(new, old):
    """What is said of a step time."""
    line = Line(metric="step_time_seconds", title="step time", status=Status.OPEN, phases=explain_time(new, old))
    return evidence_text(line)


def test_a_slower_step_names_the_phase_that_grew_most():
    """The note of the step time names the phase and its change."""
    old = measurement(forward_seconds=Reading(value=0.1), backward_seconds=Reading(value=0.2))
    new = measurement(forward_seconds=Reading(value=0.101), backward_seconds=Reading(value=0.212))

    assert phases_text(new, old) == "backward +12.0 ms"


@pytest.mark.parametrize("before", [{"rollout": 0.2}, {}])
def test_a_phase_that_a_script_names_is_named(before):
    """Also one that is new. It is a part of what is other."""
    old = measurement(other_seconds=Reading(value=0.01 + sum(before.values()), phases=before))
    new = measurement(other_seconds=Reading(value=0.31, phases={"rollout": 0.3}))

    assert phases_text(new, old) == f"rollout +{300 - 1000 * sum(before.values()):.0f} ms"


def test_a_slow_step_time_carries_its_phase():
    """The verdict's line of a step time that is slower than the baseline's."""
    metrics = (*METRICS, *Catalog().metrics("training"))
    slow = measurement(step_time_seconds=times(*[0.8] * 4), backward_seconds=Reading(value=0.5))
    old = baseline(step_time_seconds=times(0.4, 0.41, 0.39, 0.4, 0.41, 0.4), backward_seconds=Reading(value=0.2))
    old = with_measurement(old, launches=[Launch(date="")] * 3)
    slow = msgspec.structs.replace(slow, launches=[Launch(date="")])
    said = judge(slow, old, metrics, strategy="zero3")
    line = next(line for line in said.lines if line.metric == "step_time_seconds")

    assert line.status == "open" and note_text(line).endswith("; backward +300 ms")


def test_a_step_time_that_pairs_find_slower_carries_its_phase():
    """The phases of a trial's own launches."""
    a = launched(6, step_time_seconds=times(0.4), backward_seconds=Reading(value=0.2))
    b = launched(6, step_time_seconds=times(0.8), backward_seconds=Reading(value=0.5))
    line = next(line for line in compared(a, b).verdict.lines if line.metric == "step_time_seconds")

    assert line.status == "regressed" and note_text(line).endswith("; backward +300 ms")


def test_a_wait_for_other_ranks_is_named():
    """Where it is most of what a phase grew by, the phase is not to blame alone."""
    exposed = "exposed_communication_seconds"
    old = measurement(backward_seconds=Reading(value=0.2), **{exposed: Reading(value=0.01)})
    new = measurement(backward_seconds=Reading(value=0.3), **{exposed: Reading(value=0.1)})

    assert phases_text(new, old) == "backward +100 ms, exposed communication +90.0 ms"


def test_a_lone_rank_waits_for_nobody(measure):
    """Two ranks wait for each other, one rank never does: it sleeps for less than a tenth of what it steps."""
    alone, two = (measure(f"gpt2_tiny-{rest}").readings for rest in ("single+ckpt-cpu_x1", "fsdp2-cpu_x2"))
    name = "exposed_communication_seconds"

    assert alone[name].value < 0.1 * alone["step_time_seconds"].value
    assert alone[name].value < two[name].value < max(two["step_time_seconds"].samples)


def test_a_baseline_without_phases_explains_no_time():
    """A phase that one side does not know did not grow."""
    assert explain_time(measurement(forward_seconds=Reading(value=0.1)), measurement()) == []


def test_a_category_of_memory_has_no_name_of_a_metric():
    """One table shows both. Only the bytes of the same category are called alike."""
    names = {part_name(category): f"{category}_bytes" for category in CATEGORIES}
    alike = [one for one in Catalog().all("metric").values() if one.title in names]

    assert [one.name for one in alike if one.name != names[one.title]] == []
    assert alike


def test_a_note_tells_the_buffers_from_the_volume():
    """Of the peak, whose part grew."""
    old, new = (Reading(value=size, parts={"communication": size}) for size in (1024, 3072))
    peak = Catalog().all("metric")["peak_memory_bytes"]

    assert moves_text(explain(peak, new, old), BYTES) == "communication buffers +2.00 KiB"
