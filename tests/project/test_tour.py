"""The tour: its files and commands, run as they stand there, print what its blocks of output show."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TOUR = (Path(__file__).parents[2] / "docs" / "tour.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
# What differs between two machines, or two runs of one: times, and what is computed from them.
NUMBER = re.compile(r"[+-]?(?<![\w.])\d[\d,.]*+(?! MiB)")
TIMED = re.compile(r"\d (?:m?s|min)\b")
OLD, NEW = "torch.nn.functional.gelu(hidden)", "0.5 * hidden * (1 + torch.erf(hidden * 0.5**0.5))"


def lines_of(text: str) -> list[str]:
    """The lines without their spacing, and those with a time without all numbers but sizes."""
    found = []
    for line in text.splitlines():
        words = " ".join(line.split())
        if TIMED.search(words) or re.fullmatch(r"(?:\([+-][\d.]+ %\) ?)+", words):
            words = NUMBER.sub("#", words)
        found.append(words)
    return found


def missing(block: str, printed: str) -> list[str]:
    """The lines of a block that were not printed; one that ends with … is a beginning, and one alone stands for any."""
    there = lines_of(printed)
    return [
        line
        for line in lines_of(block)
        if line != "…" and not any(one.startswith(line.removesuffix("…").strip()) for one in there)
    ]


def test_a_line_that_was_not_printed_is_found():
    """Another size is another line, another time is not."""
    printed = "a-ddp-cpu_x2  new   13.49 MiB   87.9 ms  5,827\nloss  7.08 -> 7.09\n"

    assert missing("a-ddp-cpu_x2  new  13.49 MiB  90 ms  6,000\n…\nloss  7.08 …\n", printed) == []
    assert missing("a-ddp-cpu_x2  new  13.50 MiB  87.9 ms  5,827\n", printed) == ["a-ddp-cpu_x2 new 13.50 MiB # ms #"]
    assert missing("a-ddp-cpu_x2  new  13.49 MiB  87.9 ms  5,827  7.1 %\n", printed)


@pytest.mark.slow
def test_the_tour_prints_what_it_shows(tmp_path):
    """Each block of output after a command. The edits that its text asks for are made before their command."""
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TOUR, re.DOTALL)
    for name, text in files:
        (tmp_path / name).write_text(text)
    blocks = [(kind, text) for kind, text in BLOCK.findall(TOUR[TOUR.index("## Record a baseline") :])]
    printed, wrong, ran = "", [], 0
    for kind, text in blocks:
        if kind == "python":
            model = (tmp_path / "model.py").read_text()
            assert text.strip() == f"return x + self.down({NEW})"
            (tmp_path / "model.py").write_text(model.replace(OLD, NEW))
        elif kind == "bash":
            if "--perf-update=new" in text:
                conftest = (tmp_path / "conftest.py").read_text()
                (tmp_path / "conftest.py").write_text(conftest.replace("parameters=1,", "parameters=520_936,"))
            command = [sys.executable, "-m", *shlex.split(text), "-p", "no:cacheprovider"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
            printed, ran = done.stdout, ran + 1
        else:
            wrong += missing(text, printed)

    assert ran == 4
    assert wrong == []
