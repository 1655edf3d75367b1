"""Ladders of an index that tells no upload dates: dates from a file, or from the files of the releases themselves."""

import io
import json
import shutil
import tarfile
from contextlib import ExitStack
from datetime import UTC, datetime

import msgspec
import pytest
from package_index import Index, Upload, wheel
from test_ladder import _gave, _git, _ladder, _story, _suite

from perfsuite.cli.main import main
from perfsuite.environments import cutoff, dates, environments, index, lockfile, uv
from perfsuite.environments.dates import read_dates
from perfsuite.errors import FileError, UnknownName, UsageError
from perfsuite.features.ladder import asv
from perfsuite.features.ladder import asv_site as site
from perfsuite.features.ladder.ladder import Rung, read_ladder

DAY = datetime(2024, 5, 6, 7, 8, 10, tzinfo=UTC)
MIDNIGHT = datetime(2020, 2, 2, tzinfo=UTC)


@pytest.fixture
def serve(tmp_path):
    """``serve(uploads, dates=False, ranges=True)``: an index, the only one, until the test ends."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as running:

        def begin(uploads, **options):
            served = running.enter_context(Index(uploads, **{"dates": False} | options).serve())
            served.configure(patch, tmp_path / "uv")
            return served

        yield begin


def _build(folder, *options, library="packaging"):
    """``ladder run`` of a suite beside the ladder, whose rungs give nothing; the ladder, where there is one."""
    suite = folder / "suite" if (folder / "suite").exists() else _suite(folder / "suite")
    words = ["ladder", "run", library, "--suite", suite, "--folder", folder / "one", *options]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asv, "run", lambda _, __, rung, *___, **____: _gave(rung.name))
        status = main([str(word) for word in words])
    return status, read_ladder(folder / "one") if (folder / "one" / "ladder.json").exists() else None


def _locks(folder, ladder):
    return [
        lockfile.versions("\n".join(_git(folder / "one", "show", f"{rung.name}:lock.txt"))) for rung in ladder.rungs
    ]


def test_a_ladder_is_the_same_without_upload_dates(serve, packages, tmp_path, capsys):
    """Rungs of the same dates with the same locks, where wheels were built on the day that they were uploaded."""
    found = []
    for tells in (True, False):
        serve(packages, dates=tells)
        (folder := tmp_path / str(tells)).mkdir()
        status, ladder = _build(folder, "--from", "21.3", "--hold", "six==1.16.0")
        found.append((status, [(rung.name, rung.date) for rung in ladder.rungs], _locks(folder, ladder)))

    assert found[0] == found[1]
    assert found[1][2][0]["pyparsing"] == "3.0.6"  # 3.0.7 is the newest
    assert {rung.dated_by for rung in ladder.rungs} == {"build"}


def test_an_index_may_be_a_folder(packages, tmp_path, monkeypatch):
    """Pages of HTML beside the files, as pip and uv take it: a ladder is built, with the dates of the files."""
    served = Index(packages, dates=False)
    served.address = _folder_index(packages, tmp_path / "mirror").as_uri()
    served.configure(monkeypatch, tmp_path / "uv")
    status, ladder = _build(tmp_path, "--from", "21.3", "--hold", "six==1.16.0")

    assert (status, [rung.date[:10] for rung in ladder.rungs]) == (0, ["2021-11-18", "2022-12-07", "2023-01-08"])
    assert _locks(tmp_path, ladder)[0]["pyparsing"] == "3.0.6"
    assert "The date of packaging 21.3, 22.0, 23.0 is when its files were built." in ladder.about_dates


def test_a_folder_without_the_library(tmp_path, monkeypatch):
    """One sentence with the page that is not there."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", _folder_index([], tmp_path / "mirror").as_uri())

    with pytest.raises(UsageError, match=r"has no library named 'No_Such': .*simple/no-such/index\.html"):
        index.releases("No_Such")


@pytest.mark.parametrize("dates_", [True, False], ids=["JSON", "HTML"])
def test_what_uv_leaves_out_is_not_absent(dates_, serve, tmp_path, monkeypatch):
    """uv's own limit hides what is too new, and every release of an index without dates: no wrong version is blamed."""
    serve([Upload(wheel(tmp_path, "lib", "1.0"), DAY)], dates=dates_)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_EXCLUDE_NEWER", "2023-01-01")

    with pytest.raises(
        UsageError, match=r"^uv leaves out lib==1\.0, since exclude-newer is set: .* or none\. Unset UV_"
    ):
        environments.with_releases(["lib==1.0"])
    with pytest.raises(UsageError, match=r"^The package index has no lib==2\.0: check the version\."):
        environments.with_releases(["lib==2.0"])


def _folder_index(uploads, folder):
    """The pages of the files there, which lie beside them."""
    for one in uploads:
        (folder / "simple" / one.name).mkdir(parents=True, exist_ok=True)
        (folder / "files").mkdir(exist_ok=True)
        shutil.copy(one.path, folder / "files")
        with (folder / "simple" / one.name / "index.html").open("a") as page:
            page.write(f'<a href="../../files/{one.path.name}">{one.path.name}</a>\n')
    return folder / "simple"


def test_a_ladder_says_where_dates_are_from(serve, packages, tmp_path):
    """Not where the index tells them."""
    for tells in (True, False):
        serve(packages, dates=tells)
        (folder := tmp_path / str(tells)).mkdir()
        _, ladder = _build(folder, "--from", "22.0")

        assert ("The date of packaging 22.0, 23.0 is when its files were built." in ladder.about_dates) is not tells


def test_a_file_gives_dates(serve, tmp_path, capsys):
    """Of wheels whose members have a build tool's constant time; without it one sentence says what to give."""
    uploads = [Upload(wheel(tmp_path, "lib", version, built=MIDNIGHT), DAY) for version in ("1.0", "2.0")]
    serve(uploads)
    given = tmp_path / "dates.csv"
    given.write_text("name,version,date\nlib,1.0,2021-02-03\nLib,2.0.0,2022-03-04T05:06:07+00:00\n")
    suite = _suite(tmp_path / "other", "", inherits=True)
    refused = main(["ladder", "run", "lib", "--from", "1.0", "--suite", str(suite)])
    said = capsys.readouterr().err
    found = index.chosen("lib", "1.0", "", [], (), read_dates(given))

    assert refused == 2 and "Give --dates FILE with a line lib,1.0,YYYY-MM-DD." in said and said.count("\n") == 1
    assert [(one.version, f"{one.date:%Y-%m-%d}", one.by) for one in found] == [
        ("1.0", "2021-02-03", "file"),
        ("2.0", "2022-03-04", "file"),
    ]


def test_a_given_date_moves_the_cut_off(serve, packages, tmp_path, capsys):
    """With another date of a dependency another release of it was the newest of its time."""
    serve(packages)
    given = tmp_path / "dates.csv"
    given.write_text("pyparsing,3.0.6,2023-01-01\n")
    _, ladder = _build(tmp_path, "--from", "21.3", "--to", "21.3", "--dates", given)

    assert _locks(tmp_path, ladder)[0]["pyparsing"] == "3.0.4"  # packaging 21.3 refuses 3.0.5


def test_what_has_no_date_is_named(serve, packages, tmp_path):
    """A dependency whose files tell nothing is taken as it fits, and the ladder says so."""
    needy = wheel(tmp_path, "needy", "1.0", needs=["dateless"], built=DAY)
    dateless = wheel(tmp_path, "dateless", "7.0", built=MIDNIGHT)
    serve([*packages, Upload(needy, DAY), Upload(dateless, DAY)])
    _, ladder = _build(tmp_path, "--from", "1.0", library="needy")

    assert _locks(tmp_path, ladder)[0]["dateless"] == "7.0"
    assert ladder.rungs[0].undated == ("dateless",)
    assert "Packages without a known date: dateless. They may be newer" in ladder.about_dates


@pytest.mark.parametrize(
    ("built", "found"),
    [
        ({"1.0": 2010, "2.0": 2011, "3.0": 2030}, "2.0"),
        ({"1.0": 0, "2.0": 2011, "3.0": 2030}, "2.0"),
        ({"1.0": 0, "2.0": 0, "3.0": 2030}, "2.0"),  # of none is it known that it was there
        ({"1.0": 2011, "1.1": 2029, "2.0": 2030}, "1.0"),  # a late patch of the older line
        ({"1.0": 2029, "2.0": 2030}, None),
    ],
)
def test_the_cut_off(built, found, serve, packages, tmp_path):
    """The newest that was there by then; a package that was not there has to be done without."""
    new = wheel(tmp_path, "needy", "2.0", needs=["lib"], built=datetime(2019, 1, 1, 1, tzinfo=UTC))
    old = wheel(tmp_path, "needy", "1.0", built=datetime(2018, 1, 1, 1, tzinfo=UTC))
    libs = [
        wheel(tmp_path, "lib", version, built=datetime(year, 1, 1, 1, tzinfo=UTC) if year else MIDNIGHT)
        for version, year in built.items()
    ]
    serve([*packages, *(Upload(path, DAY) for path in (old, new, *libs))])
    text, _ = cutoff.lock(["needy"], lockfile.find_python("3")[1], datetime(2020, 1, 1, tzinfo=UTC), "", {})
    lock = lockfile.versions(text)

    assert lock.get("lib") == found
    assert lock["needy"] == ("2.0" if found else "1.0")


def test_a_release_that_needs_what_was_not_there_cannot_be_locked(serve, packages, tmp_path):
    """With uv's reason, as where the index tells dates."""
    needy = wheel(tmp_path, "needy", "1.0", needs=["six"], built=datetime(2010, 1, 1, 1, tzinfo=UTC))
    serve([*packages, Upload(needy, DAY)])

    with pytest.raises(lockfile.Unsolvable, match="six<0"):
        cutoff.lock(["needy==1.0"], lockfile.find_python("3")[1], datetime(2010, 1, 1, tzinfo=UTC), "", {})


@pytest.mark.parametrize("ranges", [True, False])
def test_of_a_wheel_its_end_is_read(ranges, serve, tmp_path):
    """Not its content, where the index sends parts; where it does not, the whole of one that is not too large."""
    path = wheel(tmp_path, "large", "1.0", files={"large.txt": "x" * 4_000_000}, built=DAY)
    served = serve([Upload(path, DAY)], ranges=ranges)
    found = dates.of_files((f"{served.address.removesuffix('simple/')}files/{path.name}",))

    assert found == DAY
    assert (served.sent[path.name] < 10_000) is ranges


def test_a_file_that_is_too_large_is_not_fetched(serve, tmp_path, monkeypatch):
    """Where no part of it can be had there is no date."""
    path = wheel(tmp_path, "large", "1.0", files={"large.txt": "x" * 4_000_000}, built=DAY)
    served = serve([Upload(path, DAY)], ranges=False)
    monkeypatch.setattr(dates, "WHOLE_BYTES", 1_000_000)

    assert dates.of_files((f"{served.address.removesuffix('simple/')}files/{path.name}",)) is None


@pytest.mark.parametrize(
    ("moment", "found"),
    [(DAY, DAY), (MIDNIGHT, None), (datetime(1980, 1, 1, tzinfo=UTC), None), (dates.CARGO, None)],
)
@pytest.mark.parametrize("kind", ["wheel", "source"])
def test_times_of_members(kind, moment, found, serve, tmp_path):
    """The newest is when the file was built, unless a build tool has set it."""
    path = wheel(tmp_path, "lib", "1.0", built=moment) if kind == "wheel" else _source(tmp_path, moment)
    served = serve([Upload(path, DAY)])

    assert dates.of_files((f"{served.address.removesuffix('simple/')}files/{path.name}",)) == found


def _source(folder, moment):
    path = folder / "lib-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, days in (("lib-1.0/setup.py", 0), ("lib-1.0/old.py", 100)):
            member = tarfile.TarInfo(name)
            member.mtime = moment.timestamp() - days * 86_400
            archive.addfile(member, io.BytesIO())
    return path


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn"])
def test_a_torn_file_has_no_date(content, serve, tmp_path):
    """Nor is it an error: another file of the release may have one."""
    path = tmp_path / "lib-1.0-py3-none-any.whl"
    path.write_bytes(content)
    served = serve([Upload(path, DAY)])

    assert dates.of_files((f"{served.address.removesuffix('simple/')}files/{path.name}",)) is None


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("d.csv", "lib,1.0,2024-01-01\nlib,2.0\n", "d.csv, line 2: give name, version and date"),
        (
            "d.csv",
            "lib,1.0,2024-01-01\n\nlib,2.0,yesterday\n",
            "d.csv, line 3: 'yesterday' is not a date: write YYYY-MM-DD",
        ),
        ("d.csv", "lib,one,2024-01-01\n", "d.csv, line 1: 'one' is not a version"),
        ("d.csv", "lib,,2024-01-01\n", "d.csv, line 1: give name"),
    ],
)
def test_a_bad_file_of_dates(name, text, says, tmp_path):
    """One sentence with the file and the line."""
    (tmp_path / name).write_text(text)

    with pytest.raises(FileError) as ended:
        read_dates(tmp_path / name)
    assert says in str(ended.value)


def test_a_file_of_dates_that_is_not_there(tmp_path, capsys):
    """One sentence, before the index is asked for anything."""
    status, _ = _build(tmp_path, "--from", "1.0", "--dates", tmp_path / "no.csv", library="lib")

    assert status == 2
    assert "no.csv cannot be read" in capsys.readouterr().err


def test_the_front_page_says_where_dates_are_from(tmp_path):
    """Not where all are the index's."""
    (tmp_path / "index.json").write_text(json.dumps({"benchmarks": {"b": {"param_names": []}}}))
    rungs = (Rung(name="1", date="2024-01-01", dated_by="build", releases=(), undated=("six",)),)
    told = msgspec.structs.replace(_ladder(tmp_path), rungs=rungs).about_dates
    story = msgspec.structs.replace(_story([("b", "2", "confirmed")]), about_dates=told)

    assert told in site.front(tmp_path, story)
    assert _ladder(tmp_path).about_dates == ""
    assert "The date of lib 1 is when its files were built. Packages without a known date: six." in told


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({"UV_DEFAULT_INDEX": "https://a/simple", "PIP_INDEX_URL": "https://b/simple"}, "https://a/simple"),
        ({"UV_DEFAULT_INDEX": "ours=https://a/simple"}, "https://a/simple"),
        ({"UV_INDEX_URL": "https://c/simple"}, "https://c/simple"),
        ({"PIP_INDEX_URL": "https://b/simple"}, "https://b/simple"),
        ({}, "https://d/simple"),
    ],
)
def test_uv_asks_the_index_that_pip_asks(variables, address, tmp_path, monkeypatch):
    """What is set for uv counts first, then what is set for pip, in its files too."""
    if not variables:
        pytest.importorskip("pip")
    configuration = tmp_path / "pip.conf"
    configuration.write_text("[global]\nindex-url = https://d/simple\n")
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**variables, "PIP_CONFIG_FILE": str(configuration)}.items():
        monkeypatch.setenv(name, value)
    uv._index_of_pip.cache_clear()
    found = uv.uv_variables()
    uv._index_of_pip.cache_clear()

    assert found["UV_DEFAULT_INDEX"] == address


def test_an_index_that_cannot_be_reached_is_one_sentence(monkeypatch):
    """With the variable that names another."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple/")

    with pytest.raises(UsageError, match=r"does not answer for lib: .* UV_DEFAULT_INDEX sets another"):
        index.releases("lib")


@pytest.mark.network
def test_the_index_of_this_machine(tmp_path, capsys):
    """Whatever kind it is: two releases of a real package become rungs with a lock each."""
    _, ladder = _build(tmp_path, "--from", "1.15.0", "--to", "1.16.0", library="six")

    assert [rung.date[:7] for rung in ladder.rungs] == ["2020-05", "2021-05"]
    assert [lock["six"] for lock in _locks(tmp_path, ladder)] == ["1.15.0", "1.16.0"]


@pytest.mark.parametrize(
    ("asked", "near"),
    [("5.10.9", "5.10.0"), ("5.9.10", "5.9.9"), ("6.0", "5.10.0"), ("0.1", "4.57.6"), ("5.9.9x", "5.9.9")],
)
def test_the_nearest_release_is_nearest_by_version(asked: str, near: str) -> None:
    """Not by spelling, in which 5.1.9 is like 5.10.9; a text that is no version has only its spelling."""
    known = [index.Release(version, None) for version in ("4.57.6", "5.1.9", "5.9.9", "5.10.0")]

    with pytest.raises(UnknownName) as refused:
        index.one("transformers", asked, known)
    assert f"Did you mean {near!r}? Known: 4.57.6, 5.1.9, 5.9.9, 5.10.0." in str(refused.value)
