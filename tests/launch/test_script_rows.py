"""The data that a script trains on."""

from small_scripts import START, measured

from perfsuite.meters.rows import of_data_sets

READS = """
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
class Stream(IterableDataset):
    def __iter__(self):
        while True: yield torch.randn(8)
data = {data}
for epoch in range(60):
    for _ in DataLoader(data, batch_size=4, shuffle=True):
        step()
"""


def trained(folder, data):
    """The readings of a script that reads these."""
    found = measured(folder, START + READS.format(data=data))
    assert found.outcome == "fits", found.failure
    return found.readings


def test_the_length_of_the_data_is_known(tmp_path):
    """Half of the rows is half of an epoch; its steps are the same."""
    readings = trained(tmp_path, "TensorDataset(torch.randn(50, 8))")

    assert readings["data_rows"].parts == {"data set 1": 50}
    assert readings["data_batches"].value == 13
    assert readings["drawn_rows"].value == readings["distinct_rows"].value == 3 * 4


def test_rows_that_are_drawn_again_are_not_distinct(tmp_path):
    """One batch is an epoch."""
    readings = trained(tmp_path, "torch.randn(4, 8)")

    assert readings["data_rows"].parts == {"data set 1": 4}
    assert (readings["drawn_rows"].value, readings["distinct_rows"].value) == (12, 4)


def test_another_name_of_a_data_set_is_no_other_data():
    """The class is evidence alone."""
    mine, renamed, swapped = (of_data_sets(rows) for rows in ({"B": 9, "A": 3}, {"C": 3, "D": 9}, {"A": 9, "B": 4}))

    assert mine.parts == renamed.parts == {"data set 1": 9, "data set 2": 3}
    assert mine.suspects == {"data set 1: B": 9, "data set 2: A": 3}
    assert swapped.parts != mine.parts


def test_a_stream_has_no_length(tmp_path):
    """It is never asked for one."""
    text = READS.format(data="Stream()").replace(", shuffle=True", "")

    assert not {"data_rows", "drawn_rows"} & measured(tmp_path, START + text).readings.keys()
