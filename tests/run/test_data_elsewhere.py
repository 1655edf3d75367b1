"""The data files outside of the repository that a cell's ranks opened."""

import sys
from pathlib import Path

import pytest

from perfsuite.records.packed import unpack
from perfsuite.run import data_elsewhere as module
from perfsuite.run.data_elsewhere import MOST_FILES, data_elsewhere


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of tests are temporary."""
    monkeypatch.setattr(module, "_temporary", lambda: ())


def written(place: Path, text: str = "text") -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return str(place)


def test_content_counts_by_path(tmp_path: Path) -> None:
    """Other content has another hash."""
    file = written(tmp_path / "data/words.npy")
    before = data_elsewhere([file], tmp_path / "repository")
    written(Path(file), "other")
    now = data_elsewhere([file], tmp_path / "repository")

    assert unpack(before).keys() == unpack(now).keys() == {file}
    assert before != now


@pytest.mark.parametrize(
    "path",
    [
        "repository/a.bin",
        ".cache/a",
        "me/.config/a.ini",
        "cache/a.bin",
        "libs/a.py",
        "libs/liba.so.7",
        "site-packages/a",
    ],
)
def test_what_is_no_data_elsewhere(tmp_path: Path, path: str) -> None:
    """The repository's own, hidden files, caches, code and packages."""
    assert data_elsewhere([written(tmp_path / path)], tmp_path / "repository") == {}


@pytest.mark.parametrize("link", ["conf.json", "data"])
def test_a_link_in_the_repository_counts_by_what_it_leads_to(tmp_path: Path, link: str) -> None:
    """A link to a file, and a file in a linked folder."""
    file = written(tmp_path / "data/conf.json")
    target = tmp_path / "data" / link if link == "conf.json" else tmp_path / "data"
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / link).symlink_to(target)
    opened = tmp_path / "repository" / link / ("" if link == "conf.json" else "conf.json")

    assert unpack(data_elsewhere([str(opened)], tmp_path / "repository")).keys() == {file}


def test_files_of_the_system_are_left_out(tmp_path: Path) -> None:
    """Also by a link to one, and those of this Python; and what is gone or no file."""
    (tmp_path / "hosts").symlink_to("/etc/hosts")
    pythons = [str(path) for path in Path(sys.base_prefix).glob("*")]
    named = ["/etc/hosts", "/proc/cpuinfo", "/dev/null", str(tmp_path / "hosts"), str(tmp_path), "relative", *pythons]

    assert data_elsewhere([*named, str(tmp_path / "gone")], tmp_path / "repository") == {}


def test_temporary_files_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has its own."""
    monkeypatch.undo()

    assert data_elsewhere([written(tmp_path / "a.bin")], tmp_path / "repository") == {}


def test_a_large_data_set_is_not_read(tmp_path: Path) -> None:
    """Only its first files, and all of a smaller folder."""
    files = [written(tmp_path / f"data/{number:04}.bin") for number in range(MOST_FILES + 5)]
    settings = written(tmp_path / "settings/wide.yaml")

    found = sorted(unpack(data_elsewhere([*reversed(files), settings], tmp_path / "repository")))
    assert found == [*files[: MOST_FILES - 1], settings]
