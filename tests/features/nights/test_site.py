"""The dashboard: what its first page says, and that a stranger's text stays text."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import simulated_nights as nights

from perfsuite.catalog.project import Project, Quarantine
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.errors import FileError, UsageError
from perfsuite.features.nights.dashboard import page_of
from perfsuite.features.nights.dashboard_folder import Site
from perfsuite.features.nights.row import write_months

METRICS = Catalog().all("metric")
NASTY = "<script>alert(1)</script>"


@pytest.fixture
def build(tmp_path):
    """``build(rows, …)`` writes the dashboard of these rows and returns its folder."""

    def build(rows, **fields):
        write_months(rows, tmp_path / "results")
        files = sorted((tmp_path / "results").iterdir())
        return Site(files=files, output=tmp_path / "site", metrics=METRICS, **fields).write().parent

    return build


def text_of(page):
    """A page as plain text, one blank between words."""
    text = re.sub(r'<span class="whole">(.*?)</span>', r"\1", page.read_text())
    return re.sub(r"\s+", " ", re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL))


def section(text, heading, until):
    return text[text.index(heading) : text.index(until)]


def test_the_first_page_says_what_is_wrong(build):
    """The failed cell is red, and has no result; the steps have their release."""
    project = Project(owners={"*": "@ana", "*zero2*": "@ben"})
    text = text_of(build(nights.rows(), project=project) / "index.html")

    assert "1 of 4 cells is red on the latest day." in text
    assert f"{nights.FAILING} @ben failed rank 1 died AMD EPYC" in text
    changed = section(text, "Change points of", "Cells without")
    assert re.search(
        rf"{nights.SLOWER} @ana 2026-10-11 {nights.STEP:012x} step time .* \+[78]\.\d % transformers", changed
    )
    assert re.search(
        rf"{nights.LARGER} @ana 2026-10-11 .* peak memory .* \+10\.0 % transformers 5\.22\.0 → 5\.23\.0", changed
    )
    assert nights.CALM not in changed
    assert "3 of 4 cells have a result on the latest day of their machine." in text
    assert f"{nights.FAILING} @ben failed: rank 1 died" in section(text, "Cells without", "Machines")


def test_the_week_of_a_step_has_its_mover(build):
    """The worse one is named, with its noise; an exact metric has none."""
    rows = [row for row in nights.rows() if row.date < nights.date(nights.STEP + 6)]
    text = section(text_of(build(rows) / "index.html"), "Largest movers", "Change points")

    assert re.search(rf"{nights.LARGER} nobody peak memory 2\.86 MiB 3\.15 MiB \+10\.0 % exact", text)
    assert nights.CALM not in text
    assert re.search(rf"{nights.SLOWER} nobody step time 1\d\d ms 1\d\d ms \+[78]\.\d % [\d.]+ ×", text)


def test_quarantine_is_that_of_the_run(build):
    """A result that was in quarantine when it was measured is not red, whatever the table says now."""
    held, ended = ({nights.FAILING: Quarantine(until=nights.moment(60 + days), reason="issue 31")} for days in (1, -5))
    rows = nights.rows()
    added = text_of(build(rows, project=Project(quarantine=held)) / "index.html")
    after = text_of(build(rows, project=Project(quarantine=ended)) / "index.html")
    then = [msgspec.structs.replace(row, quarantined="2026-11-01") if row.status == "failed" else row for row in rows]
    before = text_of(build(then) / "index.html")

    assert "1 of 4 cells is red on the latest day." in added
    assert f"in quarantine {nights.moment(61)} failed issue 31" in added
    assert "No cell is red on the latest day." in before
    assert "failed, quarantined until 2026-11-01" in before
    assert "1 of 4 cells is red on the latest day." in after
    assert f"ended {nights.moment(55)} failed issue 31" in after


@pytest.mark.parametrize(("days", "told"), [(1, "In quarantine until"), (-5, "Its quarantine ended on")])
def test_a_cell_s_page_says_that_a_quarantine_ended(build, days, told):
    """As the first page does, on the day of the newest result."""
    until = nights.moment(60 + days)
    project = Project(quarantine={nights.FAILING: Quarantine(until=until, reason="issue 31")})
    text = text_of(build(nights.rows(), project=project) / "cells" / page_of(nights.FAILING))

    assert f"{told} {until}: issue 31." in text
    assert ("In quarantine" in text) == (days > 0)


def test_open_cells_are_counted_as_in_a_run(build):
    """Neither the first sentence nor the table of the quarantine takes them for green."""
    cells = ("t5_tiny-ddp-cpu_x2", "t5_tiny-zero2-cpu_x2", "t5_tiny-zero3-cpu_x2")
    rows = [
        msgspec.structs.replace(nights.row(0, cell), status=status)
        for cell, status in zip(cells, ("open", "open", "ok"), strict=True)
    ]
    project = Project(quarantine={cells[1]: Quarantine(until=nights.moment(3), reason="issue 31")})
    page = build(rows, project=project) / "index.html"

    assert "No cell is red on the latest day. 2 open, 1 green." in text_of(page)
    assert '<p class="verdict yellow">' in page.read_text()
    assert re.search(r'<td class="yellow">open</td>\s*<td>issue 31', page.read_text())


def test_one_night_is_too_few_to_say_that_nothing_moved(build):
    """It is said how many are needed."""
    text = text_of(build([nights.row(0, nights.CALM)]) / "index.html")

    assert "Too few results: a cell needs 3 before the last seven days, and has at most 0." in text
    assert "Too few results to find a step. A time needs 8 results, an exact metric 2, and no cell has more" in text
    assert "Nothing moved" not in text and "stepped" not in text
    assert "Nothing moved." in text_of(build([nights.row(at, nights.CALM) for at in range(20)]) / "index.html")


def test_a_red_metric_is_first_on_its_cell_s_page(build):
    """With the reason of the first page, and a column among the last results."""
    row = nights.row(0, nights.CALM)
    metrics = row.metrics | {"loss": 2.0, "aardvarks": 1.0}
    red = msgspec.structs.replace(row, status="regressed", red=("loss",), note="loss +100 %", metrics=metrics)
    page = build([red]) / "cells" / page_of(nights.CALM)
    text = text_of(page)

    assert "regressed on 2026-09-01: loss +100 %" in text
    assert section(text, "date commit status", "Commands").startswith("date commit status loss ")
    assert re.search(r"<figcaption>\s*loss", page.read_text()[: page.read_text().index("</figcaption>") + 20])


def test_a_mistyped_cell_is_named(build):
    """An entry that no cell has would have no effect, and nobody would see it; a baseline's cell is known too."""
    entry = Quarantine(until=nights.moment(61), reason="issue 31")
    project = Project(owners={"*": "@ana", "t5_*": "@ben"}, quarantine={nights.CALM[:-1] + "3": entry})
    text = text_of(build(nights.rows(), project=project, baselines=["t5_tiny-ddp-cpu_x2"]) / "index.html")

    told = section(text, "Owners and quarantine to check", "Largest movers")
    assert f"{nights.CALM[:-1]}3&#39; matches no known cell. Did you mean &#39;{nights.CALM}&#39;?" in told
    assert "t5_*" not in told


def test_two_runs_of_a_day_are_two_results(build):
    """Neither is called a night, and the last one counts."""
    first, last = (nights.row(0, nights.CALM, date=f"2026-11-23T{hour}:00:00+00:00") for hour in (10, 12))
    red = msgspec.structs.replace(first, status="regressed", red=("loss",))
    text = text_of(build([red, last]) / "index.html")

    assert "up to 2 results each" in text and "night" not in text
    assert "No cell is red on the latest day." in text


def test_a_red_cell_says_which_metric(build):
    """By its title, also in months that were kept before notes named it."""
    rows = [row for row in nights.rows() if row.date <= nights.date(nights.STEP)]
    text = section(text_of(build(rows) / "index.html"), "Red on", "Largest movers")

    assert f"{nights.SLOWER} nobody regressed step time AMD EPYC" in text


def test_coverage_names_cells_that_nobody_measures(build):
    """One that has left the runs, and one that has only a baseline."""
    rows = [row for row in nights.rows() if row.cell != nights.CALM or row.date < nights.date(50)]
    text = text_of(build(rows, baselines=["t5_tiny-ddp-cpu_x2", nights.SLOWER]) / "index.html")
    missing = section(text, "Cells without", "Machines")

    assert f"{nights.CALM} nobody not on the latest day; last measured 2026-10-20" in missing
    assert "t5_tiny-ddp-cpu_x2 nobody has a baseline, but no run here measured it" in missing
    assert nights.SLOWER not in missing


def test_many_cells_without_a_result_are_folded(build):
    """Their number stays; a few are shown."""
    few, many = ([f"t5_tiny-ddp-cpu_x{number}" for number in range(2, count)] for count in (4, 48))
    shown = (build(nights.rows(), baselines=few) / "index.html").read_text()
    folded = (build(nights.rows(), baselines=many) / "index.html").read_text()

    assert "<h2>Cells without a result: 3 </h2>" in shown
    assert '<details>\n<summary><h2 class="fold">Cells without a result: 47</h2>' in folded


def test_a_cell_has_a_page_with_links_to_ladders(build):
    """The release that changed leads to its place on the library's site."""
    page = (
        build(nights.rows(), ladders={"transformers": "https://lab.example/ladder/"}) / "cells" / page_of(nights.SLOWER)
    )

    assert 'href="https://lab.example/ladder/index.html#5.23.0"' in page.read_text()
    assert "60 results, 2026-09-01 to 2026-10-30." in text_of(page)
    assert "by a trial" in text_of(page)


def test_text_of_a_stranger_stays_text(build):
    """In machines, notes, versions, commits and metrics; the data inside a page cannot end its element."""
    cell = "strangers-a-cpu_x1"
    rows = [
        nights.row(
            night, cell, machine=NASTY, device=NASTY, commit=NASTY, status="failed", note=NASTY,
            versions={NASTY: f"{NASTY}{night}"}, metrics={NASTY: night},
        )
        for night in range(12)
    ]  # fmt: skip
    folder = build(rows)
    pages = [folder / "index.html", *(folder / "cells").iterdir()]

    assert [page.name for page in pages[1:]] == [page_of(cell)]
    assert re.fullmatch(r"[\w+.-]+\.html", page_of(f"{NASTY}-a-cpu_x1"))
    for page in pages:
        assert NASTY not in page.read_text()
        assert "&lt;script&gt;alert(1)" in page.read_text()


def test_a_strangers_cell_is_no_text(build):
    """A row whose cell has no id is refused, so no page has its name."""
    with pytest.raises(FileError, match="is no result of a run"):
        build([nights.row(1, f"{NASTY}-a-cpu_x1", status="failed")])


def test_two_processes_write_the_same_pages(build, monkeypatch, tmp_path):
    """As many as this machine has, each with a share of the cells."""
    alone = {page.name: text_of(page) for page in build(nights.rows()).rglob("*.html")}
    monkeypatch.setattr("perfsuite.features.nights.dashboard_folder.SMALL", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    together = {page.name: text_of(page) for page in build(nights.rows()).rglob("*.html")}

    assert alone.keys() == together.keys() and len(alone) == 5
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert all(re.sub(stamp, "", alone[name]) == re.sub(stamp, "", together[name]) for name in alone)


def test_the_command(tmp_path, capsys, monkeypatch):
    """It reads a folder of months, and prints the first page; a bad address of a ladder is refused."""
    monkeypatch.chdir(tmp_path)
    write_months(nights.rows(), tmp_path / "results")
    (tmp_path / "pyproject.toml").write_text('[tool.perfsuite.owners]\n"*" = "@ana"\n')
    command = ["site", "results", "--folder", "page"]

    assert main(command) == 0
    assert capsys.readouterr().out == "page/index.html\n"
    assert "@ana" in (tmp_path / "page" / "index.html").read_text()
    assert main([*command, "--ladder", "transformers"]) == 2
    assert "--ladder takes LIBRARY=URL" in capsys.readouterr().err


@pytest.mark.parametrize("names", [("a.py",), ("index.html",), ("cells/a.py",), ("cells/a.html", "a", "b", "c", "d")])
def test_a_folder_of_other_files_is_refused(tmp_path, capsys, monkeypatch, names):
    """One sentence names them, and nothing is written among them."""
    monkeypatch.chdir(tmp_path)
    write_months(nights.rows(3), tmp_path / "results")
    for name in names:
        (tmp_path / "page" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "page" / name).write_text("mine")

    assert main(["site", "results", "--folder", "page"]) == 2
    error = capsys.readouterr().err
    assert "--folder names page, which is no dashboard and has other files: " in error
    assert ("a, b, c and 1 more. Name a new or empty folder" in error) is (len(names) > 3)
    there = {path.relative_to("page").as_posix() for path in Path("page").rglob("*") if path.is_file()}
    assert there == set(names)


@pytest.mark.parametrize("names", [(), (".git/HEAD", ".nojekyll"), ("cells/a.html",)])
def test_a_folder_of_its_own_is_written_again(tmp_path, monkeypatch, names):
    """An empty one, a branch's, one of a killed run, and then the dashboard's, whatever was added to it."""
    monkeypatch.chdir(tmp_path)
    write_months(nights.rows(3), tmp_path / "results")
    for name in ("x", *names):
        (tmp_path / "page" / name).parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        (tmp_path / "page" / name).write_text("")
    for _ in range(2):
        assert main(["site", "results", "--folder", "page"]) == 0
        (tmp_path / "page" / "CNAME").write_text("lab.example")


def test_no_result_is_refused(tmp_path):
    """Rather than an empty page that looks green."""
    (tmp_path / "2026-09.jsonl").write_text("")

    with pytest.raises(UsageError, match="no result in them"):
        Site(files=[tmp_path / "2026-09.jsonl"], output=tmp_path / "site", metrics=METRICS).write()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nodir"], "nodir does not exist: name a report, or a folder of reports."),
        (["empty.jsonl"], "1 file, and no result in them"),
        (
            ["results", "--ladder", "trnsformers=https://lab.example"],
            "no result has a library 'trnsformers'. Known: to",
        ),
    ],
)
def test_a_refused_site_writes_nothing(tmp_path, capsys, monkeypatch, arguments, told):
    """One sentence, and no folder that looks like a site."""
    monkeypatch.chdir(tmp_path)
    write_months(nights.rows(), tmp_path / "results")
    (tmp_path / "empty.jsonl").write_text("")

    assert main(["site", *arguments, "--folder", "page"]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


def test_the_command_says_what_it_needs(tmp_path):
    """Without the extra, in one sentence."""
    code = "import perfsuite.features.nights.commands.site as s; s.find_spec = lambda name: None; "
    code += "from perfsuite.cli.main import main; "
    code += f"raise SystemExit(main(['site', '.', '--folder', {str(tmp_path)!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 2
    assert 'perfsuite site needs asv, jinja2, numpy: pip install "perfsuite[site]"' in done.stderr
