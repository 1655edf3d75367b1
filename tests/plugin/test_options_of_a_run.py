"""Every option of ``pytest --perf`` with every kind of cell, through verdict, report, page and traces."""

import itertools
from pathlib import Path

import pytest
from small_scripts import START

from perfsuite.records import report_lines
from perfsuite.settings.options import OPTIONS

CELLS = {  # the cheapest of each kind
    "training": "gpt2_tiny-single-cpu_x1",
    "inference": "gpt2_tiny-forward-cpu_x1",
    "xla": "gpt2_tiny-jax_dp+nodrop-cpu_x2",
    "communication": "wire-all_reduce-cpu_x2",
    "data": "rows-torch_loader-cpu_x2",
    "script": "train.py",
}
FAST = {("script", "too little memory"), ("training", "too little memory"), ("data", "nothing")}  # the others are slow
FILES = ("--perf-report=r.jsonl", "--perf-html=r.html", "--perf-export=bencher")
RUNS = {  # some together, since each run takes seconds
    "records": ("--perf-update=new", "--perf-steps=2", "--perf-trace=all", *FILES),
    "too little memory": ("--perf-capacity=1KiB", "--perf-steps=1", "--perf-trace=red", *FILES),
    "a long run": ("--perf-long=100", "--perf-steps=1", "--perf-trial=never", *FILES),
    "itself": ("--perf-against=HEAD", "--perf-steps=1", "--perf-budget=5min", *FILES),
    "another release": ("--perf-trial=always", "--perf-steps=1", "--perf-budget=5min", *FILES),
    "nothing": ("--perf-changed", "--perf-shard=1/1", "--perf-hardware=cpu_x1,cpu_x2", *FILES),
    "elsewhere": ("--perf-predict", "--perf-hardware=h100_x1,h100_x2", *FILES),
}
ELSEWHERE = {"--perf-reason"}  # other tests have it
OURS = ("INTERNALERROR", "ValueError", "IndexError", "KeyError", "AttributeError", "TypeError", "AssertionError")


def test_every_option_is_tried():
    """A new one belongs to a run here."""
    tried = {word.partition("=")[0] for words in RUNS.values() for word in words}

    assert {one.option for one in OPTIONS} <= tried | ELSEWHERE


@pytest.fixture
def suite(pytester):
    """A repository whose only cell is of that kind."""

    def make(kind):
        pytester.makefile(".py", train=f"{START}\nfor _ in range(300): step()")
        mark = f'perf_script("{CELLS[kind]}")' if kind == "script" else f'perf_cell("{CELLS[kind]}")'
        pytester.makepyfile(
            test_it=f"import pytest\n@pytest.mark.{mark}\ndef test_it(perf_cell):\n    perf_cell.check()\n"
        )
        for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm first"):
            pytester.run("git", *words.split())
        return pytester

    return make


@pytest.mark.parametrize(
    ("kind", "run"),
    [pytest.param(*both, marks=[] if both in FAST else pytest.mark.slow) for both in itertools.product(CELLS, RUNS)],
)
def test_an_option_works_with_every_kind_of_cell(suite, kind, run):
    """Its cell has a verdict, or a sentence says why not; no error is ours."""
    done = suite(kind).runpytest_subprocess("--perf", "-p", "no:cacheprovider", *RUNS[run])
    said = done.stdout.str() + done.stderr.str()
    report = Path("r.jsonl")
    results = report_lines.read_report(report) if report.exists() else []

    assert not [word for word in OURS if word in said], said
    assert results or "no test" in said or done.ret
