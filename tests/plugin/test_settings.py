"""quickstart leaves to a library what a strategy does not name, so that a changed default is seen."""

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import Refused
from perfsuite.records.verdict import Consent
from perfsuite.settings.options import UPDATES

STATED = "gpt2_tiny-zero2+nodrop-cpu_x2"


@pytest.mark.slow
def test_a_quick_start_has_deepspeeds_own_default(measure):
    """DeepSpeed clips to 1 unless told otherwise: the quick start does what +clip does, and not what is stated."""
    quick, clipped, stated = (
        measure(cell).readings
        for cell in ("gpt2_tiny-zero2+nodrop+quickstart-cpu_x2", "gpt2_tiny-zero2+clip+nodrop-cpu_x2", STATED)
    )

    assert quick["loss"].samples == clipped["loss"].samples != stated["loss"].samples


@pytest.mark.parametrize("cell", ["gpt2_tiny-ddp+quickstart-cpu_x2", "gpt2_tiny-single+accelerate+quickstart-cpu_x1"])
def test_where_nothing_is_left_it_is_refused(catalog, cell):
    """No option of torch or of Accelerate's own loop is stated that changes numbers."""
    with pytest.raises(Refused, match="the cell would be the same"):
        parse_cell(cell, catalog)


def test_the_options_of_an_update_are_the_consents():
    """The plugin lists them without importing records, so that plain pytest stays fast."""
    assert tuple(Consent) == UPDATES
