"""Epochs: training that evaluates in between keeps its memory, and what does not is red."""

import pytest
from sampling import slow_unless

from perfsuite.catalog.strategies import parse_strategy
from perfsuite.errors import RankError
from perfsuite.meters.epochs import check_reserved
from perfsuite.rank.recipe import recipe_of

LOGITS = 2 * 2 * 64 * 512 * 4  # bytes of an epoch: batches, samples, tokens, vocabulary, fp32
ZERO3 = "zero3-cpu_x2"
ENGINES = ["single-cpu_x1", "ddp-cpu_x2", "zero1-cpu_x2", "zero2-cpu_x2", ZERO3]


def _cell(model, engine):
    name, hardware = engine.split("-")
    return f"{model}-{name}+nodrop+epochs2-{hardware}"


@pytest.mark.parametrize(
    ("model", "engine"),
    slow_unless(
        {("gpt2_tiny", "single-cpu_x1")}.__contains__,
        [*(("gpt2_tiny", engine) for engine in ENGINES), ("t5_tiny", "ddp-cpu_x2"), ("t5_tiny", ZERO3)],
    ),
)
def test_every_epoch_leaves_the_same(measure, model, engine):
    """After each epoch and its evaluation the same bytes are alive."""
    live = measure(_cell(model, engine)).readings["epoch_live_bytes"]

    assert len(live.samples) == 2
    assert set(live.samples) == {live.value}


def test_steps_are_repeated(measure):
    """Two epochs have twice the timed steps of a cell without."""
    plain = measure("gpt2_tiny-single+nodrop-cpu_x1").readings["step_time_seconds"].samples
    epochs = measure(_cell("gpt2_tiny", "single-cpu_x1")).readings["step_time_seconds"].samples

    assert len(epochs) == 2 * len(plain)


def test_evaluation_changes_no_training_step(measure):
    """The steps before and after an evaluation have the losses and gradients that they have without it."""
    plain = measure("gpt2_tiny-single+nodrop-cpu_x1").readings
    epochs = measure(_cell("gpt2_tiny", "single-cpu_x1")).readings
    trained = 3 + 1 + 3  # recorded, warm-up, the first epoch

    for metric in ("loss", "gradient_norm"):
        assert epochs[metric].samples[:trained] == plain[metric].samples[:trained]


def test_engines_agree_in_the_evaluation(measure):
    """Two ranks that share the batch evaluate to one rank's loss, although ZeRO-3 gathers its weights for it."""
    losses = [measure("gpt2_tiny-single+nodrop+epochs2-cpu_x1-b4").readings["evaluation_loss"].samples]
    losses += [
        measure(_cell("gpt2_tiny", engine)).readings["evaluation_loss"].samples for engine in ("ddp-cpu_x2", ZERO3)
    ]

    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("engine", slow_unless("single-cpu_x1".__eq__, ["single-cpu_x1", ZERO3]))
def test_evaluations_that_are_kept_are_red(measure, engine):
    """Logits that stay alive are found after the second epoch, and the message names their bytes."""
    failure = measure(_cell("gpt2_tiny", engine), "keeps_evaluations").failure

    assert f"Memory leaks: {LOGITS:,} bytes more are alive after epoch 2 " in failure.message


def test_steps_that_leak_are_red(measure):
    """A list that grows with every step is found before the first evaluation, with the place where it grows."""
    failure = measure(_cell("gpt2_tiny", "single-cpu_x1"), "leak").failure

    assert "Memory leaks: " in failure.message
    assert "after the timed steps" in failure.message
    assert failure.message.endswith(" Each of those leaves 64 bytes of aten::zeros in (end).")


@pytest.mark.parametrize("reserved", [[], [100], [100, 200], [100, 200, 200], [300, 200, 250], [200, 200, 200]])
def test_an_allocator_that_comes_to_rest_is_fine(reserved):
    """Reserved memory may grow at first, as long as it stops."""
    check_reserved(reserved)


def test_an_allocator_that_never_rests_is_red():
    """Memory that is reserved anew in every epoch ends out of memory, although no tensor holds it."""
    with pytest.raises(RankError, match=r"reserves more in every one of 3 epochs, 50 bytes in the last \(250 in all\)"):
        check_reserved([100, 200, 250])


def test_cells_without_epochs_have_no_such_metric(measure):
    """The metrics of epochs are there only where the technique is."""
    readings = measure("gpt2_tiny-single+nodrop-cpu_x1").readings

    assert not {"epoch_live_bytes", "epoch_reserved_bytes", "evaluation_loss"} & readings.keys()


def test_every_training_engine_can_evaluate_or_says_why_not(catalog):
    """An engine whose trainer has no evaluation of its own refuses epochs."""
    from perfsuite.rank.trainer import Trainer

    for engine in catalog.all("engine").values():
        if engine.process == "training" and not engine.refused and "epochs" not in engine.refuses:
            assert engine.trainer.evaluate is not Trainer.evaluate, engine.name
            assert recipe_of(parse_strategy(f"{engine.name}+epochs2", catalog)).epochs == 2
