"""The tables of measured step times, how constants are fitted on them, and the page that scores the closed form."""

import argparse
import csv
import dataclasses
import importlib
import math
import statistics
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfsuite.catalog.definitions import Layout
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.features.predict.commands import plan as plan_command
from perfsuite.features.predict.plan import layout_memory as memory
from perfsuite.features.predict.plan import room
from perfsuite.features.predict.plan.layout_names import name_of
from perfsuite.features.predict.prediction import Plan
from perfsuite.features.predict.time import fitted
from perfsuite.features.predict.time.constants import constants_of, machine_of
from perfsuite.features.predict.time.message_times import MessageGroup, collective
from perfsuite.features.predict.time.precision import weight_bytes
from perfsuite.features.predict.time.software import SOFTWARE
from perfsuite.features.predict.time.step import Breakdown
from perfsuite.features.predict.time.work import Rates
from perfsuite.records import codec
from perfsuite.settings.setting import assignments

CATALOG = Catalog(())
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
DOCS = BENCHMARKS.parent / "docs"


@pytest.fixture(scope="module")
def tables():
    """benchmarks/time_tables.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("time_tables")


@pytest.fixture(scope="module")
def published(tables):
    """benchmarks/time_published.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("time_published")


@pytest.fixture(scope="module")
def choice(tables):
    """benchmarks/time_choice.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("time_choice")


@pytest.fixture(scope="module")
def summary(tables):
    """benchmarks/time_summary.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("time_summary")


def test_no_judged_table_is_fitted(tables):
    """The constants name the calibration tables with all of their rows, and no other."""
    rows = {name: len(tables.table(name)) for name in tables.CALIBRATION}

    assert rows == fitted.ROWS
    assert not set(tables.CALIBRATION) & set(tables.JUDGED)
    assert {*tables.CALIBRATION, *tables.JUDGED} == tables.READERS.keys()


def test_what_ran_is_never_said_not_to_fit(tables):
    """A published recipe may need more by the coarse form than there is: that is doubt, and no verdict. 19 in 20 of
    them fit by it.
    """
    rows = [row for name in tables.READERS for row in tables.table(name)]
    shares = [memory.needed_bytes(row.shape, row.setup, row.stack) / row.question.room for row in rows]
    impossible = [
        row.label
        for row, share in zip(rows, shares, strict=True)
        if room.is_impossible(share * row.question.room, row.question.room)
    ]

    assert impossible == []
    assert sum(share > 1 for share in shares) < 0.05 * len(shares)
    assert max(shares) > room.DOUBT - 0.1


@pytest.mark.parametrize(
    ("model", "hardware", "layout", "stack"),
    [
        ("llama_8b", "h100_x1", "dp1 b1 ckpt", "megatron_core"),  # 16 bytes per parameter
        ("llama_8b", "a100_40g_x2", "dp2 b1 ckpt zero3", "fsdp2"),
        ("llama_70b", "h100_x8", "tp8 b1 ckpt zero1", "megatron_core"),
        ("llama_70b", "h100_x8", "dp8 b1 ckpt zero3", "fsdp2"),
        ("llama_70b", "gb300_x4n16", "dp64 b2 zero1", "megatron_core"),  # parameters and gradients fill it
        ("llama_405b", "h100_x8n8", "dp64 b1 ckpt zero3", "torchtitan"),
        ("gpt3_175b", "a100_80g_x8n8", "tp8 pp8 dp1 b8", "megatron_core"),
        ("deepseek_v3", "h100_x8n8", "pp8 dp8 ep8 b1 ckpt zero1", "megatron_core"),
    ],
)
def test_what_cannot_run_is_said_not_to_fit(model, hardware, layout, stack, capsys):
    """By the command line. Their model state alone, or what they keep for backward, exceeds the devices."""
    words = ["plan", model, f"--hardware={hardware}", "--tokens=1e9", f"--layout={layout}", f"--stack={stack}"]

    assert main([*words, "--batch=512"]) == 1
    assert "does not fit: it needs" in capsys.readouterr().out


def test_cells_that_failed_are_refused(choice):
    """Of the playbook's layouts that ended for lack of memory nearly all are left out, and many are said not to fit."""
    _, _, failed, caught = choice.refused_cells()

    assert caught >= 0.95 * failed


def test_few_bits_need_less_than_half_precision(tables):
    """Transformer Engine keeps inputs of products in their format: Llama 3 70B on 64 H100, published in both."""
    rows = [row for row in tables.table("megatron_bridge") if row.device == "h100" and row.label.startswith("llama")]
    assert rows
    for row in rows:
        half = dataclasses.replace(row.setup, precision="bf16")
        needed = [memory.needed_bytes(row.shape, setup, row.stack) for setup in (row.setup, half)]

        assert needed[0] < needed[1] or row.setup.precision == "bf16"


@pytest.mark.parametrize(
    ("precision", "gathered", "capability", "held"),
    [("bf16", 2, 9.0, 2), ("fp8", 2, 9.0, 4), ("fp8", 1, 9.0, 2), ("fp8", 1, 10.0, 1), ("mxfp8", 2, 10.0, 4.0625),
     ("nvfp4", 2, 10.0, 3.125), ("nvfp4", 1, 10.0, 1.125)],
)  # fmt: skip
def test_weights_are_kept_in_the_format_of_their_products(precision, gathered, capability, held):
    """By rows and by columns with scales; beside half precision, unless that is gathered in fp8."""
    assert weight_bytes(precision, gathered, capability) == held


def test_a_precision_aware_optimizer_keeps_half():
    """Moments in bf16, and the 16 bits that a bf16 weight lacks: 6 bytes instead of 12. fp8 weights lack all 32."""
    device, one = CATALOG.get("device", "b200"), SOFTWARE["megatron_core"]
    plain = one.setup(device, {}, layout=Layout(replicas=8), sequence=4096)
    aware = one.setup(device, {"optimizer": "adam_bf16"}, layout=Layout(replicas=8), sequence=4096)
    fp8 = one.setup(
        device, {"optimizer": "adam_bf16"}, layout=Layout(replicas=8), sequence=4096, precision="fp8", parameter_bytes=1
    )

    assert (plain.master_bytes + plain.moment_bytes, aware.master_bytes + aware.moment_bytes) == (12, 6)
    assert (fp8.master_bytes, fp8.moment_bytes) == (4, 4)
    assert aware.optimizer_bytes == plain.optimizer_bytes - 2 * 6


def test_rows_are_read_whole(tables):
    """Layout and batch agree: every rank is used, and the batch is a whole number of micro-batches."""
    for name in tables.READERS:
        for row in tables.table(name):
            assert row.setup.accumulation >= 1, row.label
            assert row.setup.samples == row.batch, row.label
            assert 0 < row.model_flops / (row.setup.ranks * row.seconds) < 4 * row.machine().flops, row.label


def test_a_table_asks_nothing_that_the_command_line_cannot(tables):
    """A row has no setup of its own: a stack, a layout, a precision and options make it, as those of `plan` do."""
    fields = {field.name for field in dataclasses.fields(tables.Row)}
    parser = argparse.ArgumentParser()
    plan_command.arguments(parser)
    known = {action.dest for action in parser._actions}

    assert "setup" not in fields
    assert {"stack", "layout", "precision", "set", "network", "batch", "sequence_length", "target_length"} <= known
    for name in tables.READERS:
        for row in tables.table(name):
            words = ["mine", "--hardware=h100_x8", "--tokens=1", f"--stack={row.stack}", f"--layout={row.layout}"]
            words += [f"--precision={row.precision}"] if row.precision else []
            words += [f"--set={one}={value}" for one, value in row.options.items()]
            given = parser.parse_args(words)
            assert assignments("--set", given.set, "") == dict(row.options), row.label
            assert row.question.setup(name_of(row.setup)) == row.setup, row.label


@pytest.mark.parametrize(
    ("name", "label", "model"),
    [
        ("megatron_bridge", "llama_70b mxfp8 on 64 gb300, 26.04", ["llama_70b"]),
        ("automodel", "llama_70b on 64 h100", ["llama_70b"]),
        ("torchtitan", "T3 bf16", ["llama_8b"]),
        (
            "nemo_dgxc",
            "nemotron4_340b on 2048 dgx_h100",
            ["mine", "--shape", "layers=96", "hidden=18432", "heads=96", "kv_heads=8", "ffn=73728", "vocab=256000"],
        ),
    ],
)
def test_the_command_line_says_what_a_table_is_judged_by(tables, tmp_path, name, label, model):
    """The same step to a thousandth: of a row of each kind, through `perfsuite plan`."""
    row = next(one for one in tables.table(name) if label in one.label)
    ranks, file = row.setup.ranks, tmp_path / "plan.json"
    words = ["plan", *model, f"--hardware={row.device}_x{row.node}n{ranks // row.node}", "--tokens=1e9"]
    words += [f"--batch={row.batch}", f"-s={row.sequence}", f"--stack={row.stack}", f"--layout={row.layout}"]
    words += [f"--network={row.network * row.node / 1e9}GB/s"] if ranks > row.node else []
    words += [f"--precision={row.precision}"] if row.precision else []
    words += [f"--set={one}={value}" for one, value in row.options.items()]

    code, planned = main([*words, f"--json={file}"]), codec.read(file, Plan)
    assert code == (0 if planned.fitting else 1)
    found = planned.layouts[0]
    assert found.predicted_step_seconds == pytest.approx(row.question.step(row.setup).total, rel=1e-3)


def test_a_row_of_sc21_by_hand(tables):
    """Its seconds follow from 137 TFLOP/s per GPU, with all layers computed again."""
    (row,) = (one for one in tables.table("megatron_sc21") if one.label.startswith("1.7B"))
    flops = 96 * 512 * 2048 * 24 * 2304**2 * (1 + 2048 / (6 * 2304) + 51200 / (16 * 24 * 2304))

    assert row.setup.ranks == 32
    assert row.seconds == pytest.approx(flops / (32 * 137e12))
    assert row.seconds == pytest.approx(3.528, abs=0.001)


def test_mfu_of_the_playbook_is_the_printed_one(tables):
    """The first row: 28.6 % printed, with 6N and whole attention."""
    row = tables.table("nanotron_playbook")[0]

    assert row.model_flops / (row.setup.ranks * row.seconds * 989.4e12) == pytest.approx(0.286, abs=0.003)


def test_mfu_of_megatron_is_the_published_one(tables):
    """Table 5 of arXiv 2205.05198: 41.5, 51.4, 56.0 and 56.3 % of 312 TFLOP/s, with selective recomputation."""
    rows = [row for row in tables.table("megatron_2205_05198") if row.setup.recompute == "selective"]
    found = [row.model_flops / (row.setup.ranks * row.seconds * 312e12) for row in rows]

    assert found == pytest.approx([0.415, 0.514, 0.560, 0.563], abs=0.003)


@pytest.mark.parametrize(("name", "mean"), [("megatron_sc21", 0.04), ("fms_fsdp", 0.08), ("megatron_v100", 0.1)])
def test_unseen_tables_are_predicted(published, summary, tables, name, mean):
    """The mean error of tables that no constant was fitted on, and 85 % of its rows are in the interval."""
    found = [published.judge(row) for row in tables.table(name)]

    assert summary.statistic(found, "mean") <= mean
    assert statistics.mean(map(summary.covered, found)) >= 0.85


def test_intervals_of_few_models_are_as_wide_as_those_of_others_had_to_be(tables):
    """Models alike need no wider interval for another. Models apart need one, at most by Student's t."""
    validate = importlib.import_module("time_validate")

    def rows(apart):
        models = [SimpleNamespace(table="t", family=str(number)) for number in range(9)]
        return [
            validate.Judged(model, apart * (number - 4) + 0.01 * step, "one node")
            for number, model in enumerate(models)
            for step in range(-9, 10)
        ]

    assert validate.widening(rows(0.0), 3, False) == 1
    assert 1.1 < validate.widening(rows(0.1), 3, False) < 1.78
    alike, apart = (validate.interval(rows(0.0), False, [rows(at), rows(at)]) for at in (0.0, 0.1))
    assert apart[0] <= alike[0] and apart[1] >= alike[1]


def test_models_that_were_left_out_are_predicted():
    """Rows of a fitted table, by constants that have not seen their model: median and mean."""
    assert fitted.VALIDATED["megatron_bridge"][1] <= 0.15
    assert fitted.VALIDATED["vtrain_multi_node"][1] <= 0.08
    assert fitted.VALIDATED["nemo_dgxc"][1] <= 0.08


def test_large_trainings_on_h100_are_predicted(published, summary, tables):
    """Dense models in bf16 with Megatron-core, as the planner is asked."""
    rows = [row for row in tables.table("nemo_dgxc") if row.device == "h100"]

    assert summary.statistic([published.judge(row) for row in rows], "mean") <= 0.04


def test_a_mfu_of_nemo_is_the_published_one(tables):
    """README_175b.md: 53.54 % of 989 TFLOP/s on 128 GPUs."""
    (row,) = (one for one in tables.table("nemo_dgxc") if one.label.startswith("gpt3_175b on 128 "))

    assert row.model_flops / (row.setup.ranks * row.seconds * 989e12) == pytest.approx(0.5354, abs=0.003)


def test_a_small_table_is_listed_and_a_large_one_is_summed_up(published, summary, tables):
    """Two rows by name; thirteen of two sizes by device and GPUs."""
    few = [published.judge(row) for row in tables.table("megatron_sc21")[:2]]
    rows = tables.table("vtrain_multi_node")
    many = [published.judge(row) for row in [*rows[:12], rows[-1]]]
    by_table = {"few": few, "many": many}

    assert [row[0] for row in summary.small_tables(by_table)] == ["1.7B on 32", "3.6B on 64"]
    assert [row[:4] for row in summary.large_tables(by_table)] == [
        ("many", "a100_80g", "64", "12"),
        ("many", "a100_80g", "512", "1"),
    ]


def test_the_tables_are_what_the_code_predicts(published, tables):
    """docs/data/time/ is up to date, and says of every target whether it is reached."""
    by_table = {name: [published.judge(row) for row in tables.table(name)] for name in tables.READERS}
    for name, (columns, rows) in published.tables(by_table).items():
        with (DOCS / "data" / "time" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            assert [tuple(line) for line in csv.reader(file)] == [tuple(columns), *rows], name
    with (DOCS / "data" / "time" / "targets.csv").open(newline="", encoding="utf-8") as file:
        assert {line["verdict"] for line in csv.DictReader(file)} <= {"met", "MISSED"}


def test_a_target_that_is_not_reached_is_missed(published, tables, monkeypatch):
    """All tables, with targets of which one is below what is reached."""
    by_table = {name: [published.judge(row) for row in tables.table(name)] for name in tables.READERS}
    monkeypatch.setattr(published, "TARGETS", [("megatron_sc21", "", "mean", limit) for limit in (0.5, 0.001)])
    verdicts = [row[-1] for row in published.targets(by_table) if "sc21" in row[0]]

    assert verdicts == ["met", "MISSED"]


@pytest.mark.parametrize(("device", "mean"), [("a100_80g", 0.06), ("h200", 0.08), ("b200", 0.15)])
def test_collectives_are_as_measured(tables, device, mean):
    """The all-reduce curves inside one node, from kilobytes to a gigabyte."""
    found = CATALOG.get("device", device)
    links = Rates.of(machine_of(found), constants_of(found, "")).links
    errors = [
        collective("all_reduce", float(line["size_mib"]) * 2**20, MessageGroup(int(line["ranks"])), links)
        / (float(line["microseconds"]) * 1e-6)
        - 1
        for line in tables.lines(tables.HERE / "all_reduce.csv")
        if line["device"] == device
    ]

    assert statistics.mean(map(abs, errors)) <= mean


def test_a_constant_mfu_is_exact_for_equal_rows(published, tables):
    """One row is predicted by its own MFU without an error."""
    assert published.constant_mfu(tables.table("megatron_sc21")[:1]) == pytest.approx(0)


def test_regret_by_hand(choice, tables, monkeypatch):
    """Three layouts of 1, 2 and 3 s, and a prediction that prefers the second: 100 %."""
    rows = [
        tables.Row(**{**_fields(tables.table("megatron_sc21")[0]), "label": str(at), "seconds": at, "group": "one"})
        for at in (1.0, 2.0, 3.0)
    ]
    said = {"1.0": 5.0, "2.0": 4.0, "3.0": 6.0}
    monkeypatch.setattr(choice, "breakdown", lambda row: Breakdown(compute=said[row.label]))

    assert choice.regret(rows) == [("one", 3, 1.0, "2.0", "1.0")]


def test_the_planner_chooses_well_among_measured_layouts(choice, tables):
    """At most 3 % slower than the best of each model's layouts on a node."""
    found = choice.regret(tables.table("nanotron_playbook"))

    assert len(found) == 3
    assert max(one.loss for one in found) <= 0.03


def test_what_allocators_reserve_by_the_coarse_memory(choice):
    """The constants of memory are those of the playbook's cells: the median is what was reserved, deviating by 6 %."""
    ratios = [-math.log(1 + one.off) for one in choice.printed() if one.table == "nanotron_playbook"]

    assert statistics.median(ratios) == pytest.approx(0, abs=0.01)
    assert statistics.pstdev(ratios) == pytest.approx(room.SPREAD, abs=0.01)


def test_the_memory_of_large_models_is_as_printed(choice):
    """Megatron-LM's tests with 11 and 15 billion parameters: within 5 %. The median of what torchtitan reserved, in its
    own tables and in torchao's: within 3 % and 5 %. Of what ran, at most 3 % is refused.
    """
    peaks = {name: [abs(one.off) for one in choice.printed() if one.table == name] for name in choice.RESERVED}
    found = [one for one in choice.printed() if one.table == "megatron_goldens"]
    ran, refused, failed, caught = choice.refused_cells()

    assert {name: len(offs) for name, offs in peaks.items()} == {"torchtitan": 16, "torchao": 6}
    assert statistics.median(peaks["torchtitan"]) <= 0.03
    assert statistics.median(peaks["torchao"]) <= 0.05
    assert len(found) == 7
    assert max(abs(one.off) for one in found) <= 0.05
    assert refused <= 0.03 * ran
    assert caught >= 0.95 * failed


def _fields(row):
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def test_other_rows_are_scored(published, tables, capsys, monkeypatch):
    """A file with the columns of a known table."""
    monkeypatch.setattr("sys.argv", ["time_published.py", f"--table=megatron_sc21={tables.HERE / 'megatron_sc21.csv'}"])

    assert published.main() == 0
    assert "megatron_sc21 | 10 |" in capsys.readouterr().out


@pytest.mark.slow
def test_the_fit_reproduces_the_constants(tables):
    """The constants in the repository are those that the calibration tables give."""
    fit = importlib.import_module("time_fit")
    found = fit.fit([row for name in tables.CALIBRATION for row in tables.table(name)])

    for group, values in fitted.VALUES.items():
        assert found[group] == pytest.approx(values, rel=0.01), group
