"""Which releases `perfsuite upgrade` tries: from words, files and nothing, with what is left out and why."""

from pathlib import Path

import pytest

from perfsuite.environments import index
from perfsuite.environments.index import Release
from perfsuite.errors import UsageError
from perfsuite.features.upgrade import requests
from perfsuite.features.upgrade.requests import between, changes_of, why_unknown
from perfsuite.records.change import Change

HERE = {"lib": "2.0", "other": "1.5", "torch": "2.13.0", "click": "8.0"}
INDEX = {"lib": ["1.0", "2.0", "2.1", "3.0"], "other": ["1.0", "1.4"], "torch": ["2.13.0", "2.14.0"], "click": ["8.0"]}
LIBRARIES = ["torch", "lib", "other"]


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some packages are installed, and an index has their releases."""

    def releases(name: str, *, yanked: bool = False) -> list[Release]:
        if name not in INDEX:
            raise UsageError(f"The package index has no library named {name!r}.")
        return [Release(version, None) for version in INDEX[name]]

    monkeypatch.setattr(requests, "_installed", lambda name: HERE.get(name, ""))
    monkeypatch.setattr(index, "releases", releases)


def tried(words: list[str], since: list[str] = []) -> tuple[list[Change], list[str]]:  # noqa: B006
    """The changes, and the notes."""
    changes, _, notes, _ = changes_of(words, since, LIBRARIES)
    return changes, notes


def test_without_words_the_newest_releases_are_tried():
    """Of each library but torch, which is said; a release that is newer than the index's stays."""
    changes, (note,) = tried([])

    assert changes == [Change("lib", "2.0", "3.0")]
    assert note.startswith("torch is tried only if it is named")


def test_nothing_newer_is_no_error(monkeypatch):
    """A weekly run finds nothing in most weeks."""
    monkeypatch.setitem(INDEX, "lib", ["1.0", "2.0"])

    assert tried([])[0] == []


def test_a_library_that_the_index_lacks_is_noted(monkeypatch):
    """The others are tried all the same; if there is none, that is the error."""
    monkeypatch.delitem(INDEX, "other")
    changes, notes = tried([])

    assert changes == [Change("lib", "2.0", "3.0")] and "The package index has no library named 'other'." in notes
    monkeypatch.delitem(INDEX, "lib")
    with pytest.raises(UsageError, match="no library named 'lib'"):
        tried([])


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (["lib==2.1"], [Change("lib", "2.0", "2.1")]),
        (["lib"], [Change("lib", "2.0", "3.0")]),
        (["lib==1.0", "other==1.4"], [Change("lib", "2.0", "1.0"), Change("other", "1.5", "1.4")]),
        (["lib==1.0 other==1.4"], [Change("lib", "2.0", "1.0"), Change("other", "1.5", "1.4")]),
        (["torch==2.14.0"], [Change("torch", "2.13.0", "2.14.0")]),
        (["lib==2.0.0", "other==1.4"], [Change("other", "1.5", "1.4")]),
    ],
)
def test_words_are_tried(words, changes):
    """Older ones too, and torch; what is installed is no change."""
    assert tried(words) == (changes, [])


def test_a_file_is_tried_without_torch_and_what_cells_do_not_use(tmp_path: Path):
    """Both are said."""
    file = tmp_path / "constraints.txt"
    file.write_text("lib==2.1  # a comment\ntorch==2.14.0\nclick==7.0\n")
    changes, notes = tried([str(file)])

    assert changes == [Change("lib", "2.0", "2.1")]
    assert notes == [
        f"torch 2.14.0 of {file} is left out: to try it, name it: torch==2.14.0",
        f"other packages of {file} stay as they are here, unless a release forces another: 1",
    ]


def test_the_old_side_may_be_given():
    """To what is installed, or to what the words say; then the others stay."""
    assert tried([], ["lib==1.0"])[0] == [Change("lib", "1.0", "2.0")]
    assert tried(["lib==2.1"], ["lib==1.0", "other==1.0"])[0] == [Change("lib", "1.0", "2.1")]


def test_what_stays_old_is_on_both_sides():
    """A library that only the old side names, or that both name with one release, keeps it; it is not what is here."""
    old = ["lib==1.0", "other==1.0"]

    assert changes_of(["lib==2.1"], old, LIBRARIES)[1] == {"other": "1.0"}
    assert changes_of(["lib==2.1", "other==1.0"], old, LIBRARIES)[1] == {"other": "1.0"}
    assert changes_of([], ["other==1.0", "lib==2.0"], LIBRARIES)[1] == {}


def test_an_older_word_beside_an_old_side_is_refused():
    """``--from lib==1.0 other==1.0``: the second release was meant for the old side too. Alone it is a try."""
    with pytest.raises(UsageError, match=r"other 1\.0 is older than 1\.5, the old side's: write --from before each"):
        tried(["other==1.0"], ["lib==1.0"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lib==2.0"], "nothing to try"),
        (["none==1.0"], "none is not installed here"),
        (["lab"], "Did you mean 'lib'"),
        (["lub==1.0"], "Did you mean 'lib'"),
        (["releases.txt"], "The file releases.txt does not exist"),
        (["lib>=2.1"], "does not pin one version"),
        (["lib==2.1", "lib==3.0"], "lib 2.1 and lib 3.0 contradict each other: name one of them"),
        (["lib==2.1 LIB==3.0"], "lib 2.1 and lib 3.0 contradict"),
        (["lib", "lib==2.1"], "lib 3.0 and lib 2.1 contradict"),
    ],
)
def test_what_cannot_be_tried_is_refused(words, said):
    """In one sentence."""
    with pytest.raises(UsageError, match=said):
        tried(words)


def test_one_release_twice_is_one():
    """However it is written."""
    assert tried(["lib==2.1", "lib==2.1.0"]) == tried(["lib==2.1"])


def test_a_word_comes_before_a_file(tmp_path):
    """Two files may contradict each other, too."""
    files = [tmp_path / "one.txt", tmp_path / "other.txt"]
    for file, version in zip(files, ("2.1", "3.0"), strict=True):
        file.write_text(f"lib=={version}\n")

    assert tried([str(files[0]), "lib==3.0"]) == tried(["lib==3.0"])
    with pytest.raises(UsageError, match=r"lib 2\.1 and lib 3\.0 contradict"):
        tried(list(map(str, files)))


def test_an_unknown_release_is_named():
    """With the nearest ones; one that exists has no such sentence, and neither has one that cannot be looked up."""
    changes = changes_of(["lib==2.2"], [], LIBRARIES)[0]

    assert why_unknown(changes[0]).startswith("No release of lib named '2.2'. Did you mean '2.1'?")
    assert why_unknown(changes[0]).endswith("Known: 1.0, 2.0, 2.1, 3.0.")  # yanked ones are among them
    assert why_unknown(changes_of(["lib==2.1"], [], LIBRARIES)[0][0]) == ""
    assert why_unknown(changes_of(["lib==3.0rc1"], [], LIBRARIES)[0][0]) == ""


def test_releases_between():
    """Both ends excluded, in either direction."""
    (change,) = changes_of(["lib==3.0"], [], LIBRARIES)[0]

    assert between(change) == ["2.1"]
    assert between(changes_of(["lib==2.1"], [], LIBRARIES)[0][0]) == []
