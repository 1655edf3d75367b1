"""The largest model that fits: where the search begins, which way it goes, and when it stops."""

from typing import Any, cast

import pytest

from perfsuite.catalog.cell import parse_hardware
from perfsuite.cli.main import main
from perfsuite.errors import Refused
from perfsuite.features.predict import largest
from perfsuite.features.predict.prediction import Estimate
from perfsuite.records.failure import Failure

STRATEGY = "single+qlora+fp16+ckpt"


@pytest.fixture
def cells(catalog):
    return largest.candidates(STRATEGY, parse_hardware("t4_x1", catalog), catalog, micro_batch=1, sequence_length=512)


@pytest.fixture
def found(cells, catalog, monkeypatch):
    """The search, if what ``fits`` says is estimated. Of models in ``untraced`` there is no estimate."""

    def search(fits, untraced=()):
        def each(chosen, *_, **__):
            for number, cell in enumerate(chosen):
                if cell.model.name in untraced:
                    yield number, Failure(kind="unsupported", rank=0, message="no", tail="")
                    continue
                outcome: Any = "fits" if fits(cell) else "oom"
                size = Estimate(
                    cell=cell.id, outcome=outcome, world_size=1, needed_bytes=1, capacity_bytes=1, layers=(3, 5)
                )
                yield number, size

        monkeypatch.setattr(largest, "_each", each)
        return largest.search(cells, catalog, cast(Any, None), padded=True, fresh=True)

    return search


def test_models_are_ordered_by_their_frozen_bytes(cells):
    """In 4 bits a table of the vocabulary weighs eight times what as many elements of layers do."""
    names = [cell.model.name for cell in cells]

    assert {cell.workload.micro_batch for cell in cells} == {1}
    assert names.index("qwen3_8b") < names.index("mistral_nemo_12b") < names.index("llama_70b")


@pytest.mark.parametrize("limit", [1e9, 7e9, 12e9, 2e10])
def test_it_ends_between_two_neighbours(cells, found, limit):
    """Few are estimated; the state alone says that the others are smaller, or do not fit."""
    sizes = {cell.id: largest._state(cell) for cell in cells}
    result = found(lambda cell: sizes[cell.id] <= limit)
    fitting = [cell for cell in cells if sizes[cell.id] <= min(limit, cell.hardware.device.usable_bytes)]

    assert sizes[result.cells[-1].id] >= max(sizes[cell.id] for cell in fitting)
    assert result.best is not None
    assert len(result.cells) < len(cells) - result.larger or len(fitting) < 3


def test_one_without_an_estimate_is_passed_over(found):
    """Its neighbours decide."""
    result = found(lambda cell: True, untraced={"mistral_nemo_12b"})

    assert result.best is not None
    assert result.best.model.name != "mistral_nemo_12b"


def test_nothing_fits(found):
    """The smallest is the last that is tried."""
    assert found(lambda cell: False).best is None


def test_a_strategy_without_a_model_is_refused(catalog):
    """By the reason of the first model."""
    with pytest.raises(Refused, match="divides parameters"):
        largest.candidates("fsdp1+qlora", parse_hardware("t4_x2", catalog), catalog, micro_batch=1, sequence_length=512)


def test_the_command_needs_a_strategy(capsys):
    """Without a MODEL it has nothing else to go by."""
    assert main(["fit", "--hardware", "t4_x1"]) == 2
    assert "it needs --strategy" in capsys.readouterr().err
