"""The largest that fits: the search, and real runs at its edge."""

import itertools
from typing import Any, cast

import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.errors import UsageError
from perfsuite.features.studies._largest_fit import FitQuestion, FitScope, answer, largest, of_micro_batches, of_models
from perfsuite.run.measuring import unwatched
from perfsuite.run.runner import Runner


@pytest.mark.parametrize("most", [1, 2, 3, 16, 33])
def test_the_search_finds_every_limit(most):
    """From none to all; each number is tried once at most, none beyond the most."""
    for limit in range(most + 2):
        tried: list[int] = []

        def fits(number, limit=limit, tried=tried):
            tried.append(number)
            return number <= limit

        assert largest(fits, most) == min(limit, most)
        assert len(set(tried)) == len(tried) and set(tried) <= set(range(1, most + 1))


def scope_of(model, strategy, hardware="cpu_x1", **fields):
    return FitScope(models=[model], strategies=[strategy], hardware=hardware, **fields)


def test_the_search_doubles_then_halves():
    """1, 2, 4, 8, 16, then between 8 and 16."""
    tried = []

    def fits(number):
        tried.append(number)
        return number <= 11

    assert largest(fits, 1000) == 11
    assert tried == [1, 2, 4, 8, 16, 12, 10, 11]


def test_models_of_a_family_stand_from_small_to_large(catalog):
    """One question per family and task; each model with its own workload."""
    models = [model for model in catalog.all("model").values() if model.name.startswith("bloom")]
    questions = of_models(FitScope(models=models[::-1], strategies=["single"], hardware="cpu_x1"), catalog)
    names = {q.name: [q.cell(number).model.name for number in range(1, q.most + 1)] for q in questions}

    assert names["bloom (sequence_classification)"][0] == "bloom_tiny_cls"
    assert names["bloom (causal_lm)"][:2] == ["bloom_tiny", "bloom_560m"]
    sizes = [catalog.get("model", name).parameters for name in names["bloom (causal_lm)"]]
    assert all(one <= other for one, other in itertools.pairwise(sizes))


def test_what_is_refused_is_answered_with_the_reason(catalog):
    """A strategy that a model cannot have is a row, not a run."""
    model = catalog.get("model", "gpt2_tiny")
    (question,) = of_micro_batches(scope_of(model, "forward+adafactor"), 8, catalog)

    unused: Any = None

    assert question.refused
    assert answer(question, unused, unused, unused).fitting is None


class Failing:
    """A runner whose cells all fail."""

    def measure(self, cell, watch):
        from gate_samples import measurement

        return measurement("failed")


def test_a_fault_is_no_edge(catalog):
    """A cell that failed neither fits nor is out of memory: the question has no answer."""
    model = catalog.get("model", "gpt2_tiny")
    (question,) = of_micro_batches(scope_of(model, "single"), 8, catalog)
    found = answer(question, cast(Runner, Failing()), lambda cell, measurement: None, unwatched)

    assert (found.fitting, found.failing, found.unanswered.outcome) == (None, None, "failed")


def test_a_typo_is_an_error_before_anything_trains(catalog):
    """An unknown technique is not a row."""
    with pytest.raises(UsageError, match="Did you mean 'bf16'"):
        of_micro_batches(scope_of(catalog.get("model", "gpt2_tiny"), "single+bf61"), 8, Catalog())


@pytest.mark.slow
def test_the_largest_micro_batch_by_real_runs(capsys):
    """Some MiB carry a micro-batch of gpt2_tiny and not the next: both were run, and both stand in the table."""
    command = ["frontier", "-k", "gpt2_tiny and not l4", "--capacity", "6MiB"]

    assert main(command) == 0
    *probes, _, _, row = capsys.readouterr().out.splitlines()
    assert [probe.split()[:2] for probe in probes] == [
        ["gpt2_tiny-single-cpu_x1-b1", "fits,"],
        ["gpt2_tiny-single-cpu_x1", "fits,"],
        ["gpt2_tiny-single-cpu_x1-b4", "oom,"],
        ["gpt2_tiny-single-cpu_x1-b3", "oom,"],
    ]
    assert row.split()[:3] == ["gpt2_tiny", "single", "2"]
    assert "3: oom, at least" in row and "most of it activations" in row


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-k", "bert", "--capacity", "1GiB"], "No model matches -k 'bert'. No name contains 'bert'. Known: "),
        (["-k", "gtp2", "--capacity", "1GiB"], "did you mean 'gpt2'?"),
        (["-k", "gpt2_tiny", "--capacity", "24"], "'24' is not an amount of memory: write a number and a unit"),
        (["-k", "gpt2_tiny"], "A CPU has no memory of its own: give a --capacity"),
        (["-k", "gpt2_tiny", "--capacity", "much"], "is not an amount of memory"),
        (["-k", "gpt2_tiny", "--capacity", "1GiB", "--micro-batch", "4"], "give it only with --seek model"),
        (["-k", "gpt2_tiny", "--hardware", "t4_x64"], "t4_x64 is not here"),
        (
            ["-k", "wire", "--strategy", "all_reduce", "--hardware", "cpu_x2", "--capacity", "1GiB"],
            "wire is not a model",
        ),
        (
            ["-k", "gpt2_tiny", "--strategy", "forward+adafactor", "--capacity", "1GiB"],
            "forward cannot be combined with",
        ),
        (["--capacity", "1GiB"], "arguments are required: -k"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, capsys):
    """Exit code 2, one line, nothing trained."""
    status: object
    try:
        status = main(["frontier", *arguments])
    except SystemExit as end:
        status = end.code
    captured = capsys.readouterr()

    assert status == 2 and captured.out == ""
    assert captured.err.count("\n") == 1 and sentence in captured.err


def test_a_question_is_of_cells_in_order(catalog):
    """The number is the micro-batch, the suffix is on every cell."""
    model = catalog.get("model", "gpt2_tiny")
    (question,) = of_micro_batches(scope_of(model, "ddp", hardware="cpu_x2", suffixes=["s32"]), 8, catalog)

    assert isinstance(question, FitQuestion)
    assert question.cell(8).id == "gpt2_tiny-ddp-cpu_x2-b8-s32"
