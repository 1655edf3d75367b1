"""What is said of a script that cannot be measured, where its own error does not say it."""

import pytest
from small_scripts import START, measured


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with a file beside it."""
    (tmp_path / "lr.txt").write_text("0.1")
    (tmp_path / "own" / ".git").mkdir(parents=True)
    return tmp_path / "own"


@pytest.mark.parametrize("before", ["", f"{START}\n", f"{START}\nfor _ in range(5): step()\n"])
def test_a_path_that_leaves_the_repository_is_named(repository, before):
    """Before torch is imported, before the first step, and after it: the file is there, and not for a copy."""
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
