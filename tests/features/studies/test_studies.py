"""Studies: every cell is a row, every sentence follows from the numbers, what was measured is not measured again."""

import csv
import dataclasses
import json
import math
import random
import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.definitions import Study, Variant
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UnknownName, UsageError
from perfsuite.features.studies._code import _digest as digests
from perfsuite.features.studies._report import StudyReport, answers
from perfsuite.features.studies._run_study import StudyOrder, run_study
from perfsuite.features.studies._study_rows import Length, Results, StudyRow, apart, ratio, time_to_train
from perfsuite.features.studies._workbench import StudyBench, Workbench, plan
from perfsuite.features.studies.scaling import columns
from perfsuite.records import codec
from perfsuite.records.failure import Failure
from perfsuite.records.measurement import Machine, Measurement
from perfsuite.records.sample import Reading
from perfsuite.run.runner import Runner, Settings

MACHINE = Machine(identity="here", device="a CPU", cores=2, memory_bytes=2**30)


def answer(results):
    return [results.compare(results.get("double"), results.get("plain"), "step_time_seconds", "step time")]


STUDY = Study(
    name="fake",
    question="How much slower?",
    asked="us",
    model="gpt2_tiny",
    hardware="cpu_x2",
    rows=(
        Variant(name="plain", engine="ddp"),
        Variant(name="double", engine="zero2"),
        Variant(name="full", engine="zero3"),
        Variant(name="impossible", engine="single"),
    ),
    reference="plain",
    answer=answer,
)


def measured(cell: str, steps: list[float], memory: int = 2**20) -> Measurement:
    """A measurement with these step times."""
    readings = {
        "peak_memory_bytes": Reading(value=memory, parts={"parameters": memory}),
        "step_time_seconds": Reading(value=sorted(steps)[len(steps) // 2], samples=list(steps)),
        "tokens": Reading(value=100),
        "tokens_per_second": Reading(value=0),
        "model_flop": Reading(value=1000),
        "peak_flops": Reading(value=1e9),
        "hardware_flop": Reading(value=1000),
        "flops_per_rank": Reading(value=0),
    }
    return Measurement(
        cell=cell, outcome="fits", world_size=2, readings=readings, versions={}, machine=MACHINE, wall_seconds=1.0
    )


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cells that are not trained: zero2's step takes twice ddp's, zero3 is out of memory. Returns what was asked."""
    asked: list[str] = []

    def measure(self: Runner, cell, watch=None, faults=()):
        asked.append(cell.id)
        if cell.strategy.engine.name == "zero3":
            failure = Failure(kind="oom", rank=0, message="Rank 0: too full")
            return msgspec.structs.replace(measured(cell.id, [1.0]), readings={}, outcome="oom", failure=failure)
        slow = 2 if cell.strategy.engine.name == "zero2" else 1
        return measured(cell.id, [0.1 * slow, 0.11 * slow, 0.12 * slow], slow * 2**20)

    monkeypatch.setattr(Runner, "measure", measure)
    monkeypatch.setattr("perfsuite.features.studies._workbench.describe", lambda hardware, catalog: MACHINE)
    return asked


def order(folder: Path, **more) -> StudyOrder:
    """Two rounds of the fake study."""
    bench = Workbench(models=("gpt2_tiny",), hardware="cpu_x2")
    return StudyOrder(
        bench=bench, settings=Settings(steps=3), length=Length(steps=1000), folder=folder, rounds=2, **more
    )


def rows_of(folder: Path) -> dict[str, Mapping[str, str]]:
    with (folder / "fake.csv").open() as file:
        return {row["row"]: row for row in csv.DictReader(file)}


def test_every_cell_is_a_row(fake, catalog, tmp_path, capsys):
    """A refused cell and one that is out of memory are rows of table, CSV and JSON, with their reasons."""
    run_study(STUDY, order(tmp_path), catalog)
    printed, rows = capsys.readouterr().out, rows_of(tmp_path)

    assert {name: row["outcome"] for name, row in rows.items()} == {
        "plain": "fits",
        "double": "fits",
        "full": "oom",
        "impossible": "refused",
    }
    assert rows["full"]["reason"] == "Rank 0: too full" and "at most 1 rank" in rows["impossible"]["reason"]
    assert re.search(r"full .*oom \[1\]", printed) and "[1] Rank 0: too full" in printed
    assert re.search(r"impossible .*refused \[2\]", printed)


def test_ratios_are_to_the_reference(fake, catalog, tmp_path):
    """Twice the step time and memory is 2.0 in the CSV, derived rates are half."""
    run_study(STUDY, order(tmp_path), catalog)
    rows = rows_of(tmp_path)

    assert float(rows["double"]["step_time_seconds_ratio"]) == pytest.approx(2)
    assert float(rows["double"]["peak_memory_bytes_ratio"]) == 2
    assert float(rows["double"]["tokens_per_second_ratio"]) == pytest.approx(0.5)
    assert float(rows["plain"]["tokens_per_second"]) == pytest.approx(100 / 0.11)
    assert rows["full"]["step_time_seconds_ratio"] == ""


def test_the_answer_is_computed(fake, catalog, tmp_path, capsys):
    """The sentence has the ratio of the numbers, on the terminal, in the JSON and on the page."""
    run_study(STUDY, order(tmp_path, html=tmp_path / "fake.html"), catalog)
    report = json.loads((tmp_path / "fake.json").read_text())

    assert re.fullmatch(r"double has 2\.00× \(1\.\d\d–2\.\d\d\) the step time of plain\.", report["answers"][0])
    assert f"• {report['answers'][0]}" in capsys.readouterr().out
    assert report["answers"][0] in (tmp_path / "fake.html").read_text()


def test_the_time_to_train_is_the_sum_of_the_steps(fake, catalog, tmp_path):
    """1,000 steps of 0.11 s on average are 110 s, with an uncertainty that is not nothing."""
    run_study(STUDY, order(tmp_path), catalog)
    row = rows_of(tmp_path)["plain"]

    assert float(row["train_seconds"]) == pytest.approx(110)
    assert 0 < float(row["train_uncertainty_seconds"]) < 110


def test_the_page_draws_every_row(fake, catalog, tmp_path):
    """Bars of memory and step time; a cell that is out of memory has no bar, but its outcome."""
    page = tmp_path / "page.html"
    run_study(STUDY, order(tmp_path, html=page), catalog)
    text = page.read_text()

    assert {path.name for path in tmp_path.iterdir()} == {"cells", "fake.json", "fake.csv", "page.html"}
    assert text.count("<figure>") == 2 and text.count(">oom</text>") == 2 and text.count('class="bar') == 2 * 2
    assert "[1] Rank 0: too full" in text


def test_what_is_kept_is_not_measured_again(fake, catalog, tmp_path):
    """A second run trains nothing, a fresh one everything, one with other settings too, more rounds only those."""
    run_study(STUDY, order(tmp_path), catalog)
    first = list(fake)
    run_study(STUDY, order(tmp_path), catalog)
    assert fake == first

    run_study(STUDY, _with_rounds(order(tmp_path), 3), catalog)
    assert len(fake) == len(first) + 2

    run_study(STUDY, order(tmp_path, fresh=True), catalog)
    assert len(fake) == 2 * len(first) + 2


def _with_rounds(given: StudyOrder, rounds: int) -> StudyOrder:
    return StudyOrder(**{**{name: getattr(given, name) for name in given.__dataclass_fields__}, "rounds": rounds})


@pytest.mark.parametrize("change", ["settings", "versions", "machine", "torn"])
def test_what_would_be_measured_otherwise_is_measured_again(fake, catalog, tmp_path, change):
    """Other steps, another torch, another machine or half a file: the cell trains again."""
    cell = parse_cell("gpt2_tiny-ddp-cpu_x2", catalog)
    runner = Runner(catalog, Settings(steps=3))
    bench = StudyBench(runner, tmp_path, False, lambda *_: None)
    bench.measure(cell, [])
    assert len(bench.kept(cell)) == 1

    path = bench.path(cell)
    if change == "settings":
        runner.settings = Settings(steps=4)
    elif change == "versions":
        path.write_text(path.read_text().replace('"versions": {}', '"versions": {"torch": "1.0"}'))
    elif change == "machine":
        path.write_text(path.read_text().replace('"here"', '"there"'))
    else:
        path.write_text(path.read_text()[:300])

    assert bench.kept(cell) == []


@pytest.mark.parametrize("where", ["catalog", "model"])
def test_what_other_code_has_measured_is_measured_again(fake, tmp_path, monkeypatch, where):
    """That of a catalog's folder, and that of the module which builds the model."""
    folder, module = tmp_path / "catalog", tmp_path / "studies_of_mine.py"
    for file in (folder / "engines" / "mine.py", module):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("ENGINES = ()\n")
    monkeypatch.syspath_prepend(tmp_path)
    gpt2 = Catalog().get("model", "gpt2_tiny")
    mine = dataclasses.replace(gpt2, name="mine_tiny", build="studies_of_mine:build")

    def kept():
        digests.cache_clear()
        catalog = Catalog((folder,), extra_models=(mine,))
        cell = parse_cell("mine_tiny-ddp-cpu_x2", catalog)
        bench = StudyBench(Runner(catalog, Settings(steps=3)), tmp_path / "out", False, lambda *_: None)
        return bench.kept(cell) or bench.measure(cell, [])

    kept(), kept()
    assert len(fake) == 1

    (folder / "engines" / "mine.py" if where == "catalog" else module).write_text("ENGINES = []\n")
    kept()

    assert len(fake) == 2


def test_a_round_that_fails_later_leaves_the_report(fake, catalog, tmp_path, monkeypatch):
    """A cell whose second round is out of memory has no time to train, however its length is told."""
    measure = Runner.measure

    def fails_later(self, cell, *arguments):
        failure = Failure(kind="oom", rank=0, message="Rank 0: too full now")
        one = measure(self, cell, *arguments)
        return (
            one
            if fake.count(cell.id) == 1
            else msgspec.structs.replace(one, readings={}, outcome="oom", failure=failure)
        )

    monkeypatch.setattr(Runner, "measure", fails_later)
    run_study(STUDY, dataclasses.replace(order(tmp_path), length=Length(tokens=1000)), catalog)

    assert {row["reason"] for row in rows_of(tmp_path).values()} >= {"Rank 0: too full now"}
    assert not any(row["train_seconds"] for row in rows_of(tmp_path).values())


def test_what_was_not_supported_is_tried_again(fake, catalog, tmp_path, monkeypatch):
    """What these versions or this machine lacked may be there the next time."""
    measure = Runner.measure
    monkeypatch.setattr(
        Runner, "measure", lambda *arguments: msgspec.structs.replace(measure(*arguments), outcome="unsupported")
    )
    cell = parse_cell("gpt2_tiny-ddp-cpu_x2", catalog)
    bench = StudyBench(Runner(catalog, Settings(steps=3)), tmp_path, False, lambda *_: None)
    bench.measure(cell, [])

    assert bench.path(cell).exists()
    assert bench.kept(cell) == []


def test_a_micro_batch_that_no_cell_would_take_is_refused(catalog):
    """Studies of batch sizes name their own: another one would be passed over in silence."""
    bench = Workbench(models=("gpt2_tiny",), hardware="cpu_x2", micro_batch=3)

    with pytest.raises(UsageError, match="every cell of zero3-vs-fsdp has its own batch"):
        plan(catalog.get("study", "zero3-vs-fsdp"), bench, catalog)
    assert any("-b3" in item.text for item in plan(catalog.get("study", "scaling"), bench, catalog))


def test_unknown_names_are_told_before_the_first_cell(fake, catalog, tmp_path):
    """A study with a technique that does not exist trains nothing."""
    study = Study(**{**vars(STUDY), "columns": (Variant(name="x", techniques=("no_such_thing",)),)})
    with pytest.raises(UnknownName, match="No technique named 'no_such_thing'"):
        run_study(study, order(tmp_path), catalog)

    assert fake == [] and list(tmp_path.iterdir()) == []


def test_equal_cells_do_not_differ():
    """Two cells with the same steps in another order of rounds are the same beyond the noise."""
    one, other = (
        StudyRow(
            model="m", row=name, column="", cell=name, outcome="fits", measurement=measured(name, [0.1]), rounds=rounds
        )
        for name, rounds in (("a", ((0.1, 0.11), (0.2, 0.21))), ("b", ((0.2, 0.21), (0.1, 0.11))))
    )
    found = ratio(one, other, "step_time_seconds")

    assert found and found.interval
    assert found.interval[0] < 1 < found.interval[1] and not found.differs


def _noisy(draw, name, rounds):
    """Rounds of ten steps of a cell whose rounds differ by 5 % and steps by 2 %."""
    levels = [draw.gauss(0, 0.05) for _ in range(rounds)]
    steps = tuple(tuple(math.exp(level + draw.gauss(0, 0.02)) for _ in range(10)) for level in levels)
    seconds = [one for each in steps for one in each]
    return StudyRow(
        model="m", row=name, column="", cell=name, outcome="fits", measurement=measured(name, seconds), rounds=steps
    )


@pytest.mark.parametrize(("rounds", "most"), [(1, 0.0), (3, 0.07), (8, 0.07)])
def test_equal_cells_are_told_apart_as_often_as_is_said(rounds, most):
    """5 in 100, and as many answers that the ratio depends on the column; one round says nothing about the noise."""
    draw = random.Random(1)
    trials: list[list[Any]] = [
        [ratio(_noisy(draw, "a", rounds), _noisy(draw, "b", rounds), "step_time_seconds") for _ in range(4)]
        for _ in range(400)
    ]
    differs = [one.differs for four in trials for one in four]
    depends = [
        apart(min(four, key=lambda one: one.value), max(four, key=lambda one: one.value), math.comb(4, 2))
        for four in trials
    ]

    assert statistics.fmean(differs) <= most
    assert statistics.fmean(depends) <= most


def test_one_round_has_no_interval():
    """And the sentence says so."""
    study = Study(**{**vars(STUDY), "reference": "a"})
    one, other = (_noisy(random.Random(seed), name, 1) for seed, name in enumerate("ab"))
    sentence = Results(study, (one, other)).compare(one, other, "step_time_seconds", "step time")

    assert re.fullmatch(r"a has \d\.\d\d× the step time of b, noise unknown with one round\.", sentence)


def test_rounds_that_differ_make_the_time_uncertain():
    """Two rounds whose means are far apart say less than one round with the same spread within."""
    measurement = measured("a-b-cpu_x2", [0.1])
    apart = time_to_train(measurement, [(0.1, 0.1), (0.2, 0.2)], Length(steps=100))
    mixed = time_to_train(measurement, [(0.1, 0.2), (0.1, 0.2)], Length(steps=100))
    single = time_to_train(measurement, [(0.1,)], Length(tokens=1000))

    assert apart and mixed and apart.seconds == mixed.seconds == pytest.approx(15)
    assert (apart.uncertainty_seconds or 0) > (mixed.uncertainty_seconds or 0) > 0
    assert single and single.steps == 10 and single.uncertainty_seconds is None


def test_studies_name_what_exists(catalog):
    """Every engine, technique and model that a study names is in the catalog."""
    missing: dict[str, set[str]] = {kind: set() for kind in ("engine", "technique", "model")}
    for study in catalog.all("study").values():
        variants = [*study.rows, *(study.columns(4) if callable(study.columns) else study.columns)]
        named = {
            "engine": {variant.engine for variant in variants} - {""},
            "technique": {
                re.sub(r"\d+$", "", name) if name.startswith("acc") else name
                for variant in variants
                for name in variant.techniques
            },
            "model": {study.model},
        }
        for kind, names in named.items():
            missing[kind] |= names - catalog.all(kind).keys()

    assert not any(missing.values()), missing


@pytest.mark.parametrize("name", [name for name, one in Catalog().all("study").items() if not one.forecast])
def test_every_answer_bears_rows_without_numbers(catalog, name):
    """Where every cell is refused, a study still answers, in sentences."""
    study = catalog.get("study", name)
    across = study.columns(4) if callable(study.columns) else study.columns
    rows = [
        StudyRow(
            model="m",
            row=row.name,
            column=column.name,
            cell="t5_tiny-zero3-cpu_x2",
            outcome="refused",
            reason="no",
            note=row.note,
        )
        for row in study.rows
        for column in across
    ]

    assert all(sentence.endswith(".") for sentence in answers(study, rows))
    assert any("refused: no." in sentence for sentence in answers(study, rows))


def test_a_global_batch_is_divided(catalog):
    """Strong scaling feeds all ranks together the same batch; ranks that are not asked for are refused."""
    bench = Workbench(models=("gpt2_tiny",), hardware="cpu_x4")
    cells = {
        (item.row.name, item.column.name): item.text for item in plan(catalog.get("study", "scaling"), bench, catalog)
    }

    assert cells["DDP, strong", "4 ranks"] == "gpt2_tiny-ddp-cpu_x4"  # 8 samples over 4 ranks: the model's own 2
    assert cells["DDP, strong", "1 rank"] == "gpt2_tiny-ddp-cpu_x1-b8"
    assert [column.name for column in columns(6)] == ["1 rank", "2 ranks", "4 ranks", "6 ranks"]


OWN = """
from perfsuite.catalog.definitions import Study, Variant
STUDIES = (
    Study(name="own", question="Which?", asked="us", model="gpt2_tiny", hardware="cpu_x1",
          rows=(Variant(name="plain", engine="single"), Variant(name="bf16", engine="single", techniques=("bf16",))),
          reference="plain", metrics=("peak_memory_bytes", "step_time_seconds"),
          answer=lambda found: [found.compare(found.get("bf16"), found.get("plain"), "peak_memory_bytes", "p")]),
)
"""


@pytest.mark.slow
def test_a_real_study(tmp_path):
    """A study of the user's own, in one file, trains, answers, and leaves finite numbers."""
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "own.py").write_text(OWN)
    mine = Catalog((tmp_path,))
    given = StudyOrder(
        bench=Workbench(models=("gpt2_tiny",), hardware="cpu_x1"),
        settings=Settings(steps=2, warmup=0),
        length=Length(tokens=10_000),
        folder=tmp_path / "out",
    )
    rows = run_study(mine.get("study", "own"), given, mine)
    report = codec.read(tmp_path / "out" / "own.json", StudyReport)

    assert [row.outcome for row in rows] == ["fits", "fits"]
    assert all(float(row["train_seconds"] or 0) > 0 and float(row["train_steps"] or 0) > 1 for row in report.rows)
    assert re.fullmatch(r"bf16 has \d\.\d\d× the p of plain\.", report.answers[0])


def test_the_memory_of_a_note_is_that_of_all_cards(catalog):
    """Two ranks with a card of 4 MiB each, and one rank whose two cards have 3 and 1: half of the baseline's 8."""
    study = catalog.get("study", "t5-oom")

    def row(name: str, peaks: list[float]) -> StudyRow:
        one = measured("t5_tiny-ddp+bf16-cpu_x2", [0.1], 2**20)
        peak = Reading(value=max(peaks) * 2**20, ranks=[size * 2**20 for size in peaks])
        one = msgspec.structs.replace(one, readings=one.readings | {"peak_memory_bytes": peak})
        note = next(variant.note for variant in study.rows if variant.name == name)
        return StudyRow(model="t5_tiny", row=name, column="", cell=one.cell, outcome="fits", note=note, measurement=one)

    sentences = study.answer(Results(study, (row("baseline", [4, 4]), row("model parallel", [3, 1]))))

    assert any(
        one.startswith("model parallel: 0.50× the memory") and "the note says 0.74× the memory" in one
        for one in sentences
    )
