"""Each sample of a stream goes through more Python."""

from perfsuite.replay.regression import Regression

REGRESSION = Regression(
    name="datasets_stream_calls",
    saw="A stream costs 40 % more Python calls per sample.",
    source="found by perfsuite; no issue is known",
    good="datasets==4.8.4",
    bad="datasets==4.8.5",
    cell="rows-hf_iterable-cpu_x2",
    moves="python_calls",
    least=0.05,
    neighbours=("datasets==4.8.3", "datasets==4.8.4"),
)
