"""What perfsuite builds once into its cache folder."""

import pytest

from perfsuite.environments.environments import installed, kept
from perfsuite.errors import UsageError


def test_a_finished_folder_is_used_without_a_lock(tmp_path, monkeypatch):
    """So it is also used in a cache that cannot be written."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = kept("things", ["one"], lambda path: path.mkdir())
    folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)

    assert kept("things", ["one"], lambda path: pytest.fail("built again")) == folder
    assert list(folder.parent.iterdir()) == [folder]


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    """With the variable that moves it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    with pytest.raises(UsageError, match=r"cannot be made: .*\. Let XDG_CACHE_HOME name another"):
        kept("things", ["one"], lambda path: path.mkdir())


def test_perfsuite_is_none_of_the_packages_that_others_inherit():
    """Its version names a commit: an environment would be built anew after each installation of another."""
    names = {text.partition("==")[0] for text in installed()}

    assert "pytest" in names
    assert "perfsuite" not in names
