"""What mkdocs takes from the repository: texts at its root, the reference from the code, results from data.

A line of a page that is only a link to a file of results is replaced by what the file holds: a table (.csv), an output
(.txt), or the sections of RESULTS. Nothing here imports torch: the parsers of the commands and the catalog do not.
"""

import argparse
import csv
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from perfsuite import plugin
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.command_files import command_files
from perfsuite.cli.main import parser_of
from perfsuite.features.prove.compatibility import pages, pairs, proofs
from perfsuite.features.prove.replay import neighbours, regression, replay_page
from perfsuite.run import releases_compared

ROOT = Path(__file__).parents[2]
PAGES = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
MARK = "<!-- generated -->"


def on_config(config: Any) -> Any:
    """With the list of versions, if mike builds one of several: a page in a folder would look for it in vain."""
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page."""
    return shown(page.file.src_uri, markdown)


def shown(page: str, markdown: str) -> str:
    """What the site shows of a page of docs/: with what is generated, and with results in the places of their links."""
    if page in PAGES:
        return as_page((ROOT / PAGES[page]).read_text())
    made = {"reference/cli.md": command_line, "reference/pytest.md": pytest_options, "reference/names.md": names}
    if page in made:
        return markdown.replace(MARK, "\n".join(made[page]()))
    return "\n".join(_results(line, (ROOT / "docs" / page).parent) for line in markdown.split("\n"))


def _results(line: str, folder: Path) -> str:
    """What a line shows: itself, or the results that it links to."""
    link = line.removeprefix("[").removesuffix(")").partition("](")[2]
    path = folder / link
    if not (line.startswith("[") and line.endswith(")")) or path.suffix not in (".csv", ".txt", ".json", ".jsonl"):
        return line
    if path.suffix == ".txt":
        return f"```text\n{path.read_text().rstrip()}\n```"
    if path.suffix != ".csv":
        return "\n".join(RESULTS[path.name](path)).rstrip()
    with path.open(newline="", encoding="utf-8") as file:
        columns, *rows = csv.reader(file)
    table = [[_text(cell) for cell in row] for row in (columns, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (table[0], ["---"] * len(columns), *table[1:]))


def support(path: Path) -> Iterable[str]:
    """Which engine goes with which technique, of support.json."""
    catalog = Catalog()
    return pages.sections(catalog, pairs.claims(catalog), proofs.load(path))


def replayed(path: Path) -> Iterable[str]:
    """Which regressions are caught, of replay.jsonl."""
    return replay_page.sections(regression.all_regressions(), releases_compared.load(path))


def near(path: Path) -> Iterable[str]:
    """Which releases of which nothing is reported are red, of neighbours.jsonl."""
    return replay_page.neighbour_sections(neighbours.all_neighbours(), releases_compared.load(path))


def releases(path: Path) -> Iterable[str]:
    """Which releases can be compared, of releases.jsonl."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    found: Iterable[str] = importlib.import_module("releases").sections(releases_compared.load(path))
    sys.path.remove(str(ROOT / "benchmarks"))
    return found


RESULTS: dict[str, Callable[[Path], Iterable[str]]] = {
    "support.json": support,
    "replay.jsonl": replayed,
    "neighbours.jsonl": near,
    "releases.jsonl": releases,
}


def as_page(text: str) -> str:
    """A text at the root of the repository, with its links as a page of docs/ has them."""
    text = re.sub(r"\]\(docs/", "](", text)
    for page, source in PAGES.items():
        text = re.sub(rf"\]\({re.escape(source)}", f"]({page}", text)
    return text


def parser() -> argparse.ArgumentParser:
    """The parser of `perfsuite` with the options of every command."""
    return parser_of(command_files())


def command_line() -> Iterator[str]:
    """A section for each command, and one for each of its actions."""
    yield from (line for child in children(parser()) for line in _section(child, 2))


def _section(one: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"\n{'#' * level} {one.prog}\n"
    yield f"{_text(one.description or '')}\n"
    inner = list(children(one))
    if not inner:
        one.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=112)
        usage = one.format_usage().removeprefix("usage: ").strip().replace("\n       ", "\n")
        yield f"```text\n{usage}\n```\n"
    shown = [action for action in one._actions if not isinstance(action, (argparse._HelpAction, _SUBPARSERS))]
    yield from _table("argument", [(_spelled(action), action.help or "") for action in shown])
    for child in inner:
        yield from _section(child, level + 1)


_SUBPARSERS = argparse._SubParsersAction


def children(one: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    """The parsers of a parser's subcommands. argparse has no public way to ask for them."""
    found = [action.choices for action in one._actions if isinstance(action, _SUBPARSERS)]
    return [child for choices in found for child in choices.values()]


def _spelled(action: argparse.Action) -> str:
    """``--model M``, ``-k EXPR``, ``MODEL``."""
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return str(value)
    return ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")


def _table(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    rows = list(rows)
    if rows:
        yield f"| {title} | meaning |\n|---|---|"
        yield from (f"| `{name}` | {_text(text)} |" for name, text in rows)
        yield ""


def _text(text: str) -> str:
    """A help text as Markdown: argparse's own %% is %, and nothing in it is markup but backticks."""
    text = " ".join(text.replace("%%", "%").split())
    parts = text.split("`")
    plain = [re.sub(r"([<>*_\[\]|])", r"\\\1", part) if n % 2 == 0 else part for n, part in enumerate(parts)]
    return "`".join(plain)


class _Options:
    """Takes what plugin.pytest_addoption adds, in the place of pytest's parser."""

    def __init__(self) -> None:
        self.options: list[tuple[str, str]] = []
        self.settings: list[tuple[str, str]] = []

    def getgroup(self, *_: str) -> "_Options":
        return self

    def addoption(self, name: str, help: str = "", metavar: str = "", **_: Any) -> None:
        self.options.append((f"{name}={metavar}" if metavar else name, help))

    def addini(self, name: str, help: str, **_: Any) -> None:
        self.settings.append((name, help))


def pytest_options() -> Iterator[str]:
    """Two tables: the options, and the settings of pytest's ini."""
    taken = _Options()
    plugin.pytest_addoption(taken)  # type: ignore[arg-type]
    yield "\n## Options\n"
    yield from _table("option", taken.options)
    yield "## Keys of the ini file\n"
    yield from _table("key", taken.settings)


def names() -> Iterator[str]:
    """A table for each kind of name in the catalog."""
    catalog = Catalog()
    kinds: tuple[tuple[str, str, Any], ...] = (
        ("Models", "model", lambda one: f"{one.family}, {one.task}, {one.parameters:,} parameters"),
        ("Engines", "engine", lambda one: _or_refused(one, f"{one.process}. Source: {one.source}")),
        ("Techniques", "technique", lambda one: _or_refused(one, f"{one.slot}: {one.meaning}")),
        ("Hardware", "device", lambda one: f"{one.memory_bytes / 2**30:.1f} GiB"),
        ("Studies", "study", lambda one: one.question),
        ("Metrics", "metric", rule_of),
    )
    for title, kind, told in kinds:
        yield f"\n## {title}\n"
        every = sorted(catalog.all(kind).values(), key=lambda one: getattr(one, "order", 0))
        yield from _table(
            "name", [(one.name + ("<n>" if getattr(one, "parameter", "") else ""), told(one)) for one in every]
        )


def rule_of(metric: Any) -> str:
    """``allocations/step: exact, from 1 % on. 1 % of the calls takes …``: what is compared, and how."""
    rule = metric.hold
    if metric.hold in ("close", "about", "most"):
        rule += f", {100 * metric.bound:g} %"
    if metric.hold == "exact" and metric.materiality.share:
        rule += f", from {100 * metric.materiality.share:g} % on. {metric.materiality.because}"
    return f"{metric.title}: {rule}"


def _or_refused(one: Any, text: str) -> str:
    return f"refused: {one.refused}" if one.refused else text
