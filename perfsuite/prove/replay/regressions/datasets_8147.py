"""A stream that is mapped takes one row of its Arrow tables at a time: the price of a position that is right."""

from perfsuite.prove.replay.regression import Regression

REGRESSION = Regression(
    name="datasets_8147",
    saw="map() of a stream costs 42 % more Python calls per sample. It read a whole table before, so that a resumed "
    "stream lost rows. Found by perfsuite; no user is known to have reported the cost.",
    source="https://github.com/huggingface/datasets/pull/8147",
    good="datasets==4.8.4",
    bad="datasets==4.8.5",
    cell="rows-hf_iterable-cpu_x2",
    moves="python_calls",
    least=0.05,
    neighbours=("datasets==4.8.3", "datasets==4.8.4"),
)
