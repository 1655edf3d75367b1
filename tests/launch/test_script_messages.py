"""What is said of a script that cannot be measured, where its own error does not say it."""

import contextlib
import os
from dataclasses import replace

import pytest
from small_scripts import START, measured

from perfsuite.catalog.scripts import script
from perfsuite.environments.environments import HERE
from perfsuite.launch import script_copy
from perfsuite.launch.scripts import ScriptServer
from perfsuite.launch.servers import ServerKind


@pytest.fixture
def repository(tmp_path):
    """A repository with a file and a folder beside it."""
    (tmp_path / "lr.txt").write_text("0.1")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.txt").write_text("1 2 3")
    (tmp_path / "own" / ".git").mkdir(parents=True)
    return tmp_path / "own"


def test_a_path_that_leaves_the_repository_is_found(repository):
    """From the current folder, and from the script's own. A small file that it writes is its own."""
    text = (
        f"{START}\nfrom pathlib import Path\nassert float(open('../lr.txt').read()) == 0.1\n"
        "assert (Path(__file__).resolve().parents[1] / 'data' / 'rows.txt').read_text() == '1 2 3'\n"
        "open('../lr.txt', 'w').write('0.2')\nfor _ in range(40): step()"
    )
    found = measured(repository, text)

    assert found.outcome == "fits", found.failure
    assert (repository.parent / "lr.txt").read_text() == "0.1"


def test_older_content_has_the_neighbours_of_the_users_repository(repository, monkeypatch):
    """It lies in a copy elsewhere, and the current folder is known in both."""
    older = repository.parent / "data"
    (repository / "src").mkdir()
    (older / "src").mkdir()
    monkeypatch.chdir(repository / "src")
    environment = replace(HERE, root=str(older), folder=str(older / "src"))
    kind = ServerKind("cpu", "", environment, "", script("train", "python train.py", older))

    with contextlib.closing(ScriptServer(kind)) as server:
        assert (server._top(), server._own(server._top())) == (older, repository)


def test_what_is_small_beside_the_repository_is_copied(repository, tmp_path_factory):
    """Never linked: a script may save checkpoints there. What is large, a link or another repository is left out."""
    around, root = repository.parent, tmp_path_factory.mktemp("root") / f"perfsuite-{os.getuid()}"
    os.truncate(around / "lr.txt", script_copy.SMALL_BYTES + 1)
    (around / "small").write_text("")
    (around / "broken").symlink_to("nowhere")
    (around / "other" / ".git").mkdir(parents=True)
    (around / "many").mkdir()
    for number in range(script_copy.SMALL_FILES):
        (around / "many" / f"{number}").touch()
    script_copy.place_below(root, repository).mkdir(parents=True)
    script_copy.copy_neighbours(root, repository)
    there = script_copy.place_below(root, around)

    assert {path.name for path in there.iterdir()} == {"data", "small", "own"}
    assert not any(path.is_symlink() for path in there.rglob("*"))
    (there / "data" / "rows.txt").write_text("")
    assert (around / "data" / "rows.txt").read_text() == "1 2 3"


def test_a_folder_of_temporary_files_beside_the_repository_is_not_copied_into_itself(repository):
    """The copy itself lies in it, as where TMPDIR is beside the repository."""
    around = repository.parent
    root = around / "temporary" / f"perfsuite-{os.getuid()}" / "root"
    script_copy.place_below(root, repository).mkdir(parents=True)
    script_copy.copy_neighbours(root, repository)

    assert "temporary" not in {path.name for path in script_copy.place_below(root, around).iterdir()}
    assert script_copy.place_below(root, around / "data").is_dir()


@pytest.mark.parametrize("before", ["", f"{START}\n", f"{START}\nfor _ in range(5): step()\n"])
def test_a_path_that_leaves_the_repository_is_named(monkeypatch, repository, before):
    """Before torch is imported, before the first step, and after it: the file is there, and not for a copy, whose
    neighbours are too many.
    """
    monkeypatch.setattr(script_copy, "MOST_NEIGHBOURS", 0)
    failure = measured(repository, f"{before}open('../lr.txt')\nimport torch").failure

    assert "FileNotFoundError" in failure.message
    assert f"../lr.txt is outside of that: name {repository.parent / 'lr.txt'}." in failure.message


def test_a_file_that_is_nowhere_is_no_matter_of_the_copy(repository):
    """The script's own error says all."""
    assert "copy" not in measured(repository, f"{START}\nopen('../none.txt')").failure.message


def test_a_script_that_fails_at_its_end_may_have_no_optimizer(tmp_path):
    """It trains, and nobody has seen a step of it."""
    by_hand = "for _ in range(9):\n    model(torch.randn(4, 8)).mean().backward()\n    model.weight.data -= 0.1\n"
    failure = measured(tmp_path, f"{START}\n{by_hand}raise LookupError('no folder')").failure

    assert "LookupError: no folder" in failure.message
    assert "call perfsuite.step()" in failure.message


def test_parameters_without_a_module_are_parameters(tmp_path):
    """They are no copies of others."""
    bare = "weight = nn.Parameter(torch.randn(8, 8)); optimizer = torch.optim.SGD([weight], lr=0.1)\n"
    loop = "for _ in range(40): optimizer.zero_grad(); (torch.randn(4, 8) @ weight).mean().backward(); optimizer.step()"
    readings = measured(tmp_path, START + bare + loop).readings

    assert (readings["parameters_bytes"].value, readings["master_parameters_bytes"].value) == (256, 0)


def test_data_in_memory_is_not_a_temporary(tmp_path):
    """It was made before the steps, and stays."""
    data = "data = torch.randn(2**16); drawn = torch.randn(2**14)\n"
    loop = "for number in range(40): drawn = drawn + 1; step()"
    peak = measured(tmp_path, f"{START}\n{data}{loop}").readings["peak_memory_bytes"]

    assert 2**18 <= peak.parts["made_before_steps"] < 2**18 + 2**10
