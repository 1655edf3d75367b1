"""The blocks of output in the README and in docs/: a comment before each has the commands that print it.

    <!-- output of 2026-11-28, 086d5aff4:
    cd $REPOSITORY && pytest --perf -k zero3
    -->

Without commands, they are those of the block of bash above it; ``<!-- output of .ci/run -->`` names a program of the
repository that a person runs. ``<!-- run: … -->`` is an edit that the page asks for. All commands of a page run in
order, in one new folder, which begins with the page's files: blocks of Python whose first line names them.

    python tests/support/docs_output.py [PAGE …]    (minutes for each; older releases need a package index)

writes what they print now into the pages. A block is a choice of the printed lines: each of its lines stands for the
first printed one that differs in numbers alone. A line that ends with … is the beginning of a longer one, and … alone
stands for any.
"""

import argparse
import datetime
import itertools
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PART = re.compile(
    r"<!-- (?P<kind>output|run)(?: of (?P<of>[^\n:>]+?))?(?:: ?\n?(?P<body>.*?))?\s*-->\n+"
    r"|```(?P<language>\w*)\n(?P<block>.*?)```",
    re.DOTALL,
)
FILE = re.compile(r"# (\w+\.py)\n")
OUTPUT = ("", "text")  # the languages of blocks of output
# What differs between two machines, or two runs of one: times, what is computed from them, and commits.
NUMBER = re.compile(r"[+-]?(?<![\w.])\d[\d,.]*+")
SIZED = re.compile(NUMBER.pattern + "(?! MiB)")
TIMED = re.compile(r"\d (?:m?s|min)\b| in [\d.]+s\b")
COMMIT = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8,40}\b")
RANK = re.compile(r"\b[Rr]ank \d+")  # that failed first
MORE = "…"
BLANKS = 2  # between columns


@dataclass(frozen=True)
class Block:
    """A block of output: where its text lies in the page, and what prints it. ``by`` is a program that people run."""

    start: int
    end: int
    text: str
    commands: str
    by: str = ""
    comment: tuple[int, int] = (0, 0)


class Unmade(Exception):
    """A block of output that no command prints, or a line of it that was not printed."""


def parts_of(page: str) -> Iterator[Block | str]:
    """The blocks of output of a page, and the commands that only run, in order. Raises Unmade."""
    above, comment = "", None
    for match in PART.finditer(page):
        if match["kind"] == "run":
            yield match["body"]
        elif match["kind"]:
            comment = match
        elif match["language"] in OUTPUT:
            if comment is None or page[comment.end() : match.start()].strip():
                if names_cells(match["block"]):
                    continue
                raise Unmade(f"no command prints this block: {match['block']}")
            of = comment["of"] or ""
            by = of if of and not of[:1].isdigit() else ""
            place = comment.span()
            yield Block(match.start("block"), match.end("block"), match["block"], comment["body"] or above, by, place)
            comment = None
        else:
            above = match["block"] if match["language"] == "bash" else above


def names_cells(block: str) -> bool:
    """Whether a block is no output, but a list of cells with what they are."""
    return all(re.match(r"[\w-]+-[\w+]+-\w+_x\w+(?:-\w+)*  ", line) for line in block.splitlines())


def plain(line: str) -> str:
    """The line without its spacing, its ranks, its commits and the width of pytest's rules; one with a time without its
    numbers, but for sizes.
    """
    line = RANK.sub("rank #", line)
    words = COMMIT.sub("#", re.sub(r"={3,}", "=", " ".join(line.split())))
    timed = TIMED.search(words) or re.fullmatch(r"(?:\([+-][\d.]+ %\) ?)+", words)
    return SIZED.sub("#", words) if timed else words


def shape(line: str) -> str:
    """The line without its numbers."""
    return NUMBER.sub("#", plain(line))


def missing(block: str, printed: str) -> list[str]:
    """The lines of a block that were not printed."""
    there = list(map(plain, printed.splitlines()))
    lines = [plain(line) for line in block.splitlines() if line.strip() != MORE]
    return [line for line in lines if not any(_begins(one, line) for one in there)]


def _begins(printed: str, line: str) -> bool:
    cut = line.removesuffix(MORE).strip()
    return printed.startswith(cut) if cut != line else printed == line


def renewed(block: str, printed: str) -> str:
    """The block with the numbers that were printed. Raises Unmade for a line that differs in more than numbers."""
    lines = []
    for line in block.splitlines():
        if line.strip() == MORE:
            lines.append(line)
            continue
        like = [one for one in printed.splitlines() if _begins(shape(one), shape(line))]
        if not like:
            raise Unmade(f"not printed any more: {line}\nWhat was printed:\n{printed}")
        cut = line.rstrip().endswith(MORE)
        words = len(line.rstrip().removesuffix(MORE).split())
        found = re.match(rf"\s*(?:\S+\s*){{{words}}}", like[0]) if cut else None
        lines.append(f"{found[0].rstrip(' ,')} {MORE}" if found else like[0].rstrip())
    tables = itertools.groupby(lines, lambda line: line.startswith("  ") and line.strip() != MORE)
    kept = [line for is_table, some in tables for line in (narrow(list(some)) if is_table else some)]
    return "\n".join(kept) + "\n"


def narrow(table: list[str]) -> list[str]:
    """The lines without the columns that only the omitted ones need: of those that are blank in all, two suffice."""
    if len(table) == 1:
        return table
    width, kept = max(map(len, table)), list[int]()
    for at in range(width):
        before = range(max(0, at - BLANKS), at + 1)
        if at < BLANKS or any(line[one : one + 1].strip() for line in table for one in before):
            kept.append(at)
    return ["".join(line[at : at + 1] for at in kept) for line in table]


def prints(page: str, folder: Path) -> Iterator[tuple[Block, str]]:
    """Each block of a page that commands print, and what they print now, in this folder."""
    for match in PART.finditer(page):
        if match["language"] == "python" and (name := FILE.match(match["block"])):
            (folder / name[1]).write_text(match["block"])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = os.environ | {"PATH": path, "REPOSITORY": str(ROOT), "COLUMNS": "120"}
    variables |= {"PYTEST_ADDOPTS": "-p no:cacheprovider"}
    for part in parts_of(page):
        commands = part if isinstance(part, str) else part.commands
        if isinstance(part, Block) and part.by:
            continue
        done = subprocess.run(["bash", "-c", commands], cwd=folder, env=variables, capture_output=True, text=True)
        if isinstance(part, Block):
            yield part, done.stdout + done.stderr
        elif done.returncode:
            raise Unmade(f"{commands}: {done.stderr}")


def made_anew(page: str, folder: Path, when: str) -> str:
    """The page with all of its blocks as they are printed now."""
    for block, printed in reversed(list(prints(page, folder))):
        (folder / "printed").write_text(printed)
        page = page[: block.start] + renewed(block.text, printed) + page[block.end :]
        start, end = block.comment
        head = re.sub(r"^<!-- output(?: of [^\n:>]+?)?(?=:|\s*-->)", f"<!-- output of {when}", page[start:end])
        page = page[:start] + head + page[end:]
    return page


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(description="Make the blocks of output of these pages anew.")
    parser.add_argument(
        "pages", nargs="*", type=Path, default=[ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    )
    commit = subprocess.run(shlex.split("git rev-parse --short HEAD"), cwd=ROOT, capture_output=True, text=True).stdout
    when = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {commit.strip()}"
    for page in parser.parse_args().pages:
        text = page.read_text()
        with tempfile.TemporaryDirectory() as folder:
            new = made_anew(text, Path(folder), when)
        if new != text:
            page.write_text(new)
            print(page)


if __name__ == "__main__":
    main()
