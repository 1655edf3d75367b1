"""Whose the imported files are."""

import importlib.util
import sys
import tempfile

from perfsuite.rank.loaded import own_files


def test_a_module_that_a_library_generates_is_not_the_users(tmp_path, monkeypatch):
    """It lies among the temporary files, by a name of its own in each run; a project may lie deeper there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files = [tmp_path / "layer_x7f2.py", tmp_path / "project" / "model.py"]
    files[1].parent.mkdir()
    for file in files:
        file.write_text("")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec
        monkeypatch.setitem(sys.modules, file.stem, importlib.util.module_from_spec(spec))

    assert [file for file in own_files() if file.startswith(str(tmp_path))] == [str(files[1])]
