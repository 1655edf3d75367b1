"""``perfsuite memory`` and ``perfsuite fit``: the printed texts, and the errors for impossible requests."""

import itertools
import pickle
import re

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.cli.main import main
from perfsuite.features.predict.commands.fit import costs, is_of_use
from perfsuite.features.predict.memory_table import batches
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.traced_memory import predict
from perfsuite.records.formats import FORMAT

TINY = ["memory", "gpt2_tiny", "--strategy", "single+bf16", "--hardware", "rtx3090_x2"]


@pytest.fixture(scope="module", autouse=True)
def cache(catalog, tmp_path_factory):
    """A cache of predictions of this file's own, traced in one go."""
    cells = ("single+bf16-rtx3090_x1", "fsdp2+bf16+offload-rtx3090_x2", "ddp+bf16-rtx3090_x2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        predict([parse_cell(f"gpt2_tiny-{one}", catalog) for one in cells], catalog)
        yield


def test_the_table_says_what_fits(capsys):
    """The prediction says that it is one, and how much is left of what torch sees of the device; exit code 0."""
    status = main(TINY)
    printed = capsys.readouterr().out

    assert status == 0
    assert printed.startswith(
        "gpt2_tiny-single+bf16-rtx3090_x1: predicted, not measured; micro-batches of 2 × 64 tokens, with padding\n"
    )
    assert "of 23.70 GiB: fits, " in printed


def test_a_lone_rank_of_two_devices_is_told(capsys):
    """``single`` takes one of several, and says so."""
    main(["memory", "gpt2_tiny", "--strategy", "single+bf16", "--hardware", "rtx3090_x2"])
    heading, told = capsys.readouterr().out.splitlines()[:2]

    assert heading.startswith("gpt2_tiny-single+bf16-rtx3090_x1: ")
    assert told == "single trains on one device of rtx3090_x2."


def test_explain_begins_with_what_one_expects(capsys):
    """--explain walks from 16 bytes per parameter to the allocator's figure."""
    main([*TINY, "--explain"])
    printed = capsys.readouterr().out

    assert "141,056 parameters at 16 bytes" in printed
    assert "The caching allocator needs" in printed
    assert re.search(r" in (1 tensor|\d+ tensors) made by ", printed)


@pytest.mark.slow
def test_the_snapshot_peaks_as_predicted(catalog, tmp_path, capsys):
    """--snapshot traces the rank and writes torch's own format, for memory_viz."""
    main([*TINY, "--snapshot", str(tmp_path / "step.pickle")])
    (predicted,) = predict([parse_cell("gpt2_tiny-single+bf16-rtx3090_x1", catalog)], catalog)
    (trace,) = pickle.loads((tmp_path / "step.pickle").read_bytes())["device_traces"]
    signs = {"alloc": 1, "free_completed": -1}

    assert "step.pickle is written" in capsys.readouterr().out
    assert max(itertools.accumulate(signs.get(one["action"], 0) * one["size"] for one in trace)) == predicted.peak_bytes


def test_the_timeline_marks_the_peak(tmp_path, capsys):
    """--html draws the step, whose highest point is the peak of the table."""
    main([*TINY, "--html", str(tmp_path / "step.html")])
    page = (tmp_path / "step.html").read_text()
    peak = re.findall(r"live tensors +([\d.]+ MiB)", capsys.readouterr().out)[0]

    assert f"Predicted live tensors over a step, rank 0: at most {peak}" in page


@pytest.mark.slow
def test_a_sweep_is_a_table_and_bars(tmp_path, capsys):
    """--sweep batch doubles the micro-batch from the model's own on; --html draws what each needs."""
    status = main([*TINY, "--sweep", "batch", "--html", str(tmp_path / "sweep.html")])
    printed, page = capsys.readouterr().out, (tmp_path / "sweep.html").read_text()

    assert status == 0
    assert [line.split()[0] for line in printed.splitlines() if "█" in line] == ["b2", "b4", "b8", "b16", "b32", "b64"]
    assert "6 of 6 fit by batch, from b2 to b64." in page and ">b64</text>" in page


@pytest.mark.slow
def test_a_sweep_ends_with_the_learned_positions(capsys):
    """gpt2_tiny has learned 128 positions: no memory is predicted for a length that it cannot read."""
    status = main([*TINY, "--sweep", "seq"])
    printed = capsys.readouterr().out

    assert status == 0
    assert [line.split()[0] for line in printed.splitlines() if "█" in line] == ["s16", "s32", "s64", "s128"]
    assert "gpt2_tiny has learned 128 positions, so no sequence can be longer." in printed


def test_both_lengths_of_a_micro_batch_are_told(catalog):
    """Of a model with a decoder, and whether samples are padded."""
    workload = parse_cell("t5_base-single+bf16-rtx3090_x1-b3-s512-t128", catalog).workload

    assert batches(workload, padded=False) == "micro-batches of 3 × 512 + 128 tokens, without padding"


def test_offload_is_shown_apart(capsys):
    """What waits in the host's memory has a line of its own and is not on the device."""
    main(["memory", "gpt2_tiny", "--strategy", "fsdp2+bf16+offload", "--hardware", "rtx3090_x2"])
    printed = capsys.readouterr().out

    assert "\non the host" in printed
    assert "\noptimizer state" not in printed


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["memory", "gpt2_tiny", "--strategy", "single+compile"], "torch.compile plans its own buffers"),
        (["memory", "gpt2_tiny", "-b", "0"], "1 or more"),
        (["memory", "gpt2_tiny", "-t", "8"], "no decoder of its own"),
        ([*TINY, "-s", "129"], "gpt2_tiny has learned 128 positions, so it has none for 129 tokens."),
        (["fit", "gpt2_tiny", "--hardware", "rtx3090_x2", "-s", "129"], "has learned 128 positions"),
        (
            ["memory", "gpt2_tiny", "--strategy", "megatron+tp2+sp", "--hardware", "cpu_x2", "-s", "63"],
            "sp divides 63 tokens over 2 ranks, which leaves a rest",
        ),
        (["memory", "gpt2_tinny"], "Did you mean 'gpt2_tiny'?"),
        (["memory", "gpt2_tiny-single-rtx3090_x1", "-b", "4"], "a whole cell's id"),
        (["memory", "gpt2_tiny-single-rtx3090_x1", "--strategy", "ddp"], "a whole cell's id"),
        ([*TINY, "--sweep", "batch", "--explain"], "--explain and --snapshot are for one cell"),
        ([*TINY, "--html", "step.png"], "--html names step.png: it must be a file *.html"),
        ([*TINY, "--html", "no/where.html"], "in an existing folder"),
        ([*TINY, "-b", "1000000000"], "A forward of 64,000,000,000 tokens exceeds every device"),
        (["memory", "gpt2-tiny", "--hardware", "rtx3090_x1"], "Did you mean 'gpt2_tiny'?"),
        (["memory", "gpt2_tiny", "--hardware", "rtx3090_x0"], "needs a number of ranks from 1 to 999,999"),
        (["fit", "gpt2_tiny", "--hardware", "cpu_x2"], "name a device"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(capsys, arguments, reason):
    """Exit code 2, with the reason on stderr."""
    status = main(arguments)

    assert status == 2
    assert reason in capsys.readouterr().err


def test_fit_says_why_a_strategy_cannot_be(capsys):
    """What is refused, for the reason that holds on the ranks it could have, stands below the table."""
    names = ["tp+bf16", "single+adamw_apex", "single+bf16"]
    status = main(["fit", "gpt2_tiny", "--hardware", "rtx3090_x2", "--strategy", *names])
    printed = capsys.readouterr().out

    assert status == 0
    assert "gpt2_tiny-tp+bf16-rtx3090_x2: " in printed and "adamw_fused is the same step" in printed
    assert "at most 1 rank" not in printed


@pytest.mark.parametrize(
    ("cell", "useful"),
    [
        ("gpt2_tiny-single+bf16-h100_x1", True),
        ("gpt2_tiny-ddp+bf16-h100_x1", False),
        ("gpt2_tiny-zero3+bf16+ckpt-h100_x1", False),
        ("gpt2_tiny-zero3+bf16+ckpt+offload-h100_x1", True),
        ("gpt2_tiny-zero3+bf16+ckpt-h100_x2", True),
        ("gpt2_tiny-jax_fsdp+nodrop-tpu_v5e_x1", True),
    ],
)
def test_one_device_divides_nothing(catalog, cell, useful):
    """What only divides over ranks is tried on several of them, unless it is named."""
    assert is_of_use(parse_cell(cell, catalog)) is useful


BROKEN = """
from perfsuite.catalog.definitions import Technique


def fail(session, model):
    raise RuntimeError("no such layer")


TECHNIQUES = (Technique(name="broken", slot="broken", order=99, meaning="Fails.", applies=fail),)
"""


def test_a_training_that_fails_says_nothing_of_the_others(tmp_path, capsys):
    """A ranking tells of all other cells, why this one is not predicted, and exits with 1."""
    (tmp_path / "techniques").mkdir()
    (tmp_path / "techniques" / "broken.py").write_text(BROKEN)
    names = ["single+bf16", "single+broken"]
    cells = ["fit", "gpt2_tiny", "--hardware", "rtx3090_x1", "--strategy", *names]
    status = main([*cells, "--catalog", str(tmp_path)])
    printed = capsys.readouterr().out

    assert status == 1
    assert re.search(r"single\+bf16 .* fits", printed)
    assert "not predicted: its trace failed: RuntimeError: no such layer" in printed


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ("single+bf16", "nothing"),
        ("single+adamw4bit_ao", "moments rounded to 4 bits"),
        ("single+prune", "prune: unknown"),
    ],
)
def test_a_cost_that_is_not_known_is_not_nothing(catalog, strategy, told):
    """Nothing is what costs nothing; a technique without an entry says so."""
    cell = parse_cell(f"gpt2_tiny-{strategy}-rtx3090_x1", catalog)

    assert costs(cell, Prediction(format=FORMAT, cell=cell.id, outcome="fits", world_size=1)) == told


def test_fit_ranks_by_speed(capsys):
    """The most tokens per second come first, with what they cost; each is reported on stderr when it is known."""
    status = main(["fit", "gpt2_tiny", "--hardware", "rtx3090_x2", "--strategy", "single+bf16", "ddp+bf16"])
    printed, told = capsys.readouterr()

    assert status == 0
    assert printed.index("ddp+bf16") < printed.index("single+bf16")
    assert "[2/2] gpt2_tiny-" in told
    assert "one all-reduce of the gradients" in printed
    assert printed.startswith(
        "gpt2_tiny on rtx3090_x2: predicted, not measured; micro-batches of 2 × 64 tokens, with padding\n"
    )
