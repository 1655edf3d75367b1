"""The README and docs/: links and anchors exist, commands parse, sentences and lines are short, words are plain."""

import csv
import functools
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from perfsuite.catalog.registry import Catalog
from perfsuite.records.verdict import Status
from perfsuite.settings.keys import KEYS
from perfsuite.settings.options import UPDATES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Their sentences are lists of what was found, or errors that others' packages raise.
LISTS = (
    "detection.md",
    "releases.md",
    "support.md",
)
EVERY = sorted([*ROOT.glob("*.md"), *(ROOT / "changes").glob("*.md"), *DOCS.rglob("*.md")])
PROSE = [path for path in EVERY if path.name not in LISTS]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
NOT_CHECKED = re.compile(r"<!-- not checked: \S.*? -->\n+( *)```\w*\n.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MOST_WORDS, MOST_COLUMNS, MOST_WORDS_OF_PAGES = 25, 120, 25_000
PLAIN = {  # what STYLE.md names, and what to write for it
    r"behind": "after",
    r"beside": "next to, in addition to",
    r"consent\w*": "accept",
    r"mood|pace": "load, speed",
    r"told|tells": "reported, reports",
    r"cannot be had": "cannot be satisfied",
    r"held to": "compared with",
}

every_page = pytest.mark.parametrize("path", EVERY, ids=lambda path: str(path.relative_to(ROOT)))
prose_page = pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))


def hooks():
    """docs/_site/hooks.py, by which the site takes pages from the repository."""
    spec = importlib.util.spec_from_file_location("docs_hooks", DOCS / "_site" / "hooks.py")
    assert spec
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = hooks()
parser = functools.cache(HOOKS.parser)


@functools.cache  # the page of what goes with what takes seconds to make
def text_of(path: Path) -> str:
    """What the site shows of a page of docs/, and any other page as it is."""
    inside = path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else ""
    return HOOKS.shown(inside, path.read_text()) if inside else path.read_text()


def prose_of(path: Path) -> str:
    """What is written in a page, without the results that it links to."""
    inside = path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else ""
    return text_of(path) if inside in HOOKS.PAGES else path.read_text()


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and Python-Markdown make it."""
    plain = LINK.sub(lambda match: match[0][1 : match[0].index("]")], heading).replace("`", "")
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", plain.strip().lower())).strip("-")


def anchors(path: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", text_of(path)), re.MULTILINE)}


def dead_links(path: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    dead = []
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))):
        if re.match(r"https?://|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (path.parent / name).resolve() if name else path
        if not found.is_file() or (anchor and anchor not in anchors(found)):
            dead.append(target)
    return dead


@every_page
def test_links(path):
    """Every relative link leads to a file, and every anchor to a heading of it."""
    assert dead_links(path, text_of(path)) == []


def test_dead_links_are_found():
    """No file, no heading, in this page and in another."""
    text = "[a](docs/none.md) [b](docs/cells.md#none) [c](#none) [d](docs/cells.md#models) [e](https://example.org)"

    assert dead_links(ROOT / "README.md", text) == ["docs/none.md", "docs/cells.md#none", "#none"]


def commands(text: str) -> Iterator[tuple[str, bool]]:
    """Each command of a page, and whether it is whole: in a block, not within a sentence."""
    text = NOT_CHECKED.sub("", text)
    for _, language, block in FENCE.findall(text):
        if language in ("bash", "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                yield from ((command, True) for command in simple(line))
    for span in re.findall(r"`([^`\n]+)`", FENCE.sub("", text)):
        if re.match(r"(perfsuite|pytest|tox|pip|python|\.github/run_job\.py) \S", span):
            yield span, False


def simple(line: str) -> Iterator[str]:
    """The simple commands of a line of bash."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set(";&|"):
            if words and words[0] not in ("for", "done"):
                yield shlex.join(words[words[0] == "do" :])
            words = []
        else:
            words.append(word)


class Wrong(Exception):
    """What is wrong with a command."""


@pytest.fixture(scope="module")
def known_to_pytest():
    """Every option in pytest's help, those of its plugins included."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(re.findall(r"(?<![\w-])--?[\w-]+", done.stdout))


def check(command: str, whole: bool, known: set[str]) -> None:
    """Raise Wrong if there is no such command, or if it has no such flag."""
    command = command.removeprefix("uvx ")  # which finds perfsuite first
    starts = command.startswith(("perfsuite emulate ", "perfsuite init ", "perfsuite prove ", "perfsuite run "))
    command, _, inner = command.partition(" -- ") if starts else (command, "", "")
    if inner:  # what it runs
        if command.startswith("perfsuite emulate"):  # a reader's own script
            check(inner, whole, known)
        command += " -- COMMAND"
    program, *words = shlex.split(command, comments=True)
    checks = {
        "perfsuite": lambda: perfsuite(words, whole),
        "pytest": lambda: pytest_words(words, known),
        "python": lambda: script(words),
        "pip": lambda: extras(words),
        "tox": lambda: environment(words),
        ".github/run_job.py": lambda: job(words),
        "asv": lambda: one_of(words[0], ("check", "run", "publish", "preview")),
        "pre-commit": lambda: one_of(words[0], ("install", "run")),
        "git": lambda: None,
        "cd": lambda: None,
        "mkdir": lambda: None,
        "torchrun": lambda: None,
    }
    one_of(program, checks)
    checks[program]()


def one_of(word, known) -> None:
    if word not in known:
        raise Wrong(f"{word} is none of {', '.join(sorted(known))}")


def perfsuite(words: list[str], whole: bool) -> None:
    """By its own parser. Of a command within a sentence, which may lack arguments, the subcommand and the flags."""
    if whole:
        try:
            parser().parse_args(words)
        except SystemExit as ended:
            if ended.code:
                raise Wrong(f"perfsuite {shlex.join(words)} does not parse") from None
        return
    one = parser()
    if words and words[0] in one._option_string_actions:
        return  # perfsuite --version
    while words and (children := {child.prog.split()[-1]: child for child in HOOKS.children(one)}):
        if words[0].isupper():
            return  # perfsuite COMMAND
        one_of(words[0], children)
        one, words = children[words[0]], words[1:]
    for flag in (word.partition("=")[0] for word in words if word.startswith("-") and word != "--"):
        one_of(flag, one._option_string_actions)


def pytest_words(words: list[str], known: set[str]) -> None:
    for word in words:
        if word.startswith("-"):
            one_of(word.partition("=")[0], known)
        elif word.startswith("perf_"):
            one_of(word.partition("=")[0], {key.key for key in KEYS})
        elif word.startswith(("benchmarks/", "tests/")) and not (ROOT / word).exists():
            raise Wrong(f"{word} does not exist")
    updates = [word.partition("=")[2] for word in words if word.startswith("--perf-update=")]
    for one in ",".join(updates).split(",") if updates else ():
        one_of(one, UPDATES)


def script(words: list[str]) -> None:
    if words[0] != "-m" and not (ROOT / words[0]).is_file():
        raise Wrong(f"{words[0]} does not exist")


def extras(words: list[str]) -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name in re.findall(r"\.\[([\w,]+)\]", " ".join(words)):
        for one in name.split(","):
            one_of(one, extra)
    for name in re.findall(r"-c (\S+\.txt)", " ".join(words)):
        if not (ROOT / name).is_file():
            raise Wrong(f"{name} does not exist")


def environment(words: list[str]) -> None:
    known = re.findall(r"^\[testenv:(\w+)\]", (ROOT / "tox.ini").read_text(), re.MULTILINE)
    for name in words[words.index("-e") + 1].split(","):
        one_of(name, known)


def job(words: list[str]) -> None:
    one_of(words[0], [path.stem for path in (ROOT / ".github" / "workflows").glob("*.yml")])
    one_of(words[1], yaml.safe_load((ROOT / ".github" / "workflows" / f"{words[0]}.yml").read_text())["jobs"])


@every_page
def test_commands(path, known_to_pytest):
    """Every command exists, with flags that its parser knows. Nothing is run."""
    wrong = []
    for command, whole in commands(text_of(path)):
        try:
            check(command, whole, known_to_pytest)
        except Wrong as reason:
            wrong.append(f"{command}: {reason}")

    assert wrong == []


@pytest.mark.parametrize(
    "command",
    [
        "perfsuite frontir -k x",
        "perfsuite list --suport",
        "pytest --perf-updat=new",
        "pytest --perf --perf-update=worse",
        "pytest --perf -o perf_none=1",
        "pytest --perf benchmarks/test_none.py",
        "python benchmarks/none.py",
        'pip install -e ".[none]"',
        "tox -e none",
        ".github/run_job.py gate none",
        "frobnicate",
    ],
)
def test_wrong_commands_are_found(command, known_to_pytest):
    """Each kind of command, with a name or a flag that does not exist."""
    with pytest.raises(Wrong):
        check(command, True, known_to_pytest)


def test_commands_are_read_as_bash():
    """Continued lines, comments, several in a line; a block that says why it is not checked is left out."""
    page = (
        "```bash\npytest --perf \\\n  -k a  # b\npip x && tox -e y\n```\n\n<!-- not checked: why -->\n```bash\nz\n```\n"
    )

    assert [command for command, _ in commands(page)] == ["pytest --perf -k a", "pip x", "tox -e y"]


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, cells of tables and points of lists each by itself; a span of code is one word."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", FENCE.sub("\n", text), flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "code", LINK.sub(lambda match: match[0][1 : match[0].index("]")], text))
    text = re.sub(r"^ *\|.*$", lambda match: "\n\n" + match[0].replace("|", "\n\n") + "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"^(#+ .*)$", r"\1\n", text, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n *(?:- |\d+\. )", text):
        yield from re.split(r"(?<=[.!?])[*_)\"]* +", " ".join(block.split()))


def words(sentence: str) -> int:
    return sum(any(letter.isalnum() for letter in word) for word in sentence.split())


@prose_page
def test_sentences_are_short(path):
    """At most 25 words."""
    assert [one for one in sentences(prose_of(path)) if words(one) > MOST_WORDS] == []


@every_page
def test_lines_are_short(path):
    """At most 120 columns, tables included."""
    assert [line for line in path.read_text().splitlines() if len(line) > MOST_COLUMNS] == []


@prose_page
def test_words_are_plain(path):
    """None that STYLE.md replaces, outside of code."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", prose_of(path)))

    assert [(word, PLAIN[word]) for word in PLAIN if re.search(rf"\b({word})\b", text, re.IGNORECASE)] == []


def test_the_pages_are_few_words():
    """What is written by hand, without the decisions, the reference and the results that are shown from data."""
    count = sum(words(path.read_text()) for path in DOCS.glob("*.md"))

    assert count <= MOST_WORDS_OF_PAGES


def test_each_file_of_results_is_on_one_page():
    """Nobody would see another one, and a link to none would end the build of the site."""
    results = {path.relative_to(DOCS).as_posix() for path in (DOCS / "data").rglob("*.*")}
    links = [link for path in DOCS.glob("*.md") for link in LINK.findall(path.read_text()) if link.startswith("data/")]

    assert sorted(links) == sorted(results)


def test_every_page_is_in_the_site():
    """The navigation of mkdocs.yml names each page once, and no other."""
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)

    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_reference_has_every_command():
    """A heading for each command and each of its actions."""
    page = "\n".join(HOOKS.command_line())
    parsers = list(HOOKS.children(parser()))
    every = [inner.prog for one in parsers for inner in (one, *HOOKS.children(one))]

    assert len(every) > len(parsers) > 10
    assert [name for name in every if f" {name}\n" not in page] == []


def test_the_reference_has_every_option(known_to_pytest):
    """Those of pytest that are ours."""
    page = "\n".join(HOOKS.pytest_options())
    ours = {name for name in known_to_pytest if name.startswith("--perf")}

    assert [name for name in ours if not re.search(rf"`{name}[`=]", page)] == []


def test_the_reference_has_every_name():
    """One of each kind."""
    page = "\n".join(HOOKS.names())

    assert [name for name in ("gpt2_tiny", "fsdp2", "dp<n>", "h100", "t5-oom", "loss") if f"`{name}`" not in page] == []


def test_each_promise_names_a_test_that_is_there():
    """The file, and for each word of -k a test whose name has it."""
    files = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    with (DOCS / "data" / "promises.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["test"], row["-k"]) for row in csv.DictReader(file)]

    assert len(rows) > 40
    assert [(file, words) for file, words in rows if file not in files] == []
    assert [
        (file, word)
        for file, words in rows
        for word in filter(None, words.split(" or "))
        if not re.search(rf"def test_\w*{word}", files[file])
    ] == []


BY_HAND = " ".join(" ".join(path.read_text() for path in EVERY if path.is_relative_to(DOCS)).lower().split())
# What titles have around the name: the size of a message, a long run's or a start's, a rate.
AROUND = re.compile(r"^(?:long run: |start: |emulated |\d+[km]ib )|/.*$| grown$| left$")


@pytest.mark.parametrize("metric", Catalog().all("metric").values(), ids=lambda metric: metric.name)
def test_each_metric_is_explained(metric):
    """By the name that a run prints, on some page that is written by hand."""
    name = metric.title.lower()
    while AROUND.search(name):
        name = AROUND.sub("", name)

    assert name.rstrip("s") in BY_HAND.replace("**", "")


@pytest.mark.parametrize("status", Status)
def test_each_status_is_explained(status):
    """In the page about statuses, as code."""
    assert f"`{status}`" in (DOCS / "verdicts.md").read_text()


def test_the_grid_has_as_many_cells_as_the_glossary_says():
    """As pytest collects them."""
    command = [sys.executable, "-m", "pytest", "--perf", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "benchmarks/test_cells.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    (said,) = re.findall(r"^(\d+) tests collected", done.stdout, re.MULTILINE)

    assert f"`benchmarks/test_cells.py`, with {said} cells" in (DOCS / "glossary.md").read_text()
