"""Python calls for each row of a stream: in torch's format, or with a map.

pip install torch datasets==4.8.5
python datasets_streams.py map
"""

import sys

import datasets

rows = datasets.Dataset.from_dict({"x": [[float(row)] * 8 for row in range(200)]})
calls = 0


def count(frame: object, event: str, argument: object) -> None:
    """One more, if a function of Python begins."""
    global calls
    calls += event == "call"


stream = rows.to_iterable_dataset()
iterator = iter(stream.with_format("torch") if sys.argv[1] == "format" else stream.map(lambda row: {"y": 1}))
next(iterator)
sys.setprofile(count)
made = sum(1 for _ in iterator)
sys.setprofile(None)
print(f"datasets {datasets.__version__}: {calls / made:.0f}")
