"""`perfsuite run` names the cause that was put into a small script, with its line, and none in a script without one."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from scripts_with_causes import CausedScript, scripts
from small_scripts import measured

from perfsuite.compare.standing_out import StandOut, standing_out
from perfsuite.run.runner import Settings

SCRIPTS = {name: one for name, one in scripts().items() if one.base != "lightning" or find_spec("lightning")}
QUIET = [name for name, one in SCRIPTS.items() if one.symptom is None]
ALWAYS = (
    "generator_sleeps", "keeps_tensors", "replaces_by_larger", "own_attention", "reads_loss", "compiles_each_size",
    "widened_by_numbers", "asks_in_the_forward", "quiet_mlp", "quiet_turns",
)  # fmt: skip
ENOUGH = Settings(steps=10, warmup=4)
WRONG, LOUD = 2, 1  # scripts with a cause whose name is wrong, and without one that have a name
MISSED = 4  # of forty, wrong names included


def first_of(one: CausedScript, folder: Path) -> StandOut | None:
    """What is named first in the script."""
    launcher = f"torchrun --nproc-per-node {one.ranks}" if one.ranks > 1 else "python"
    found = measured(folder, one.text, launcher, one.ranks, ENOUGH)
    assert found.outcome == "fits", found.failure
    return next(iter(standing_out(found)), None)


@pytest.mark.parametrize("name", ALWAYS)
def test_a_cause_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    """A handful of them."""
    one = SCRIPTS[name]
    first = first_of(one, tmp_path)

    assert (first and first.symptom) == one.symptom
    assert one.line in (first.where if first else "")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_causes_are_named_and_nothing_else_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of forty and more, at most four are not named right, and two wrong; of ten without a cause, one at most is."""
    named = {name: first_of(one, tmp_path_factory.mktemp(name)) for name, one in SCRIPTS.items()}
    missed = {name: one for name, one in named.items() if (one and one.symptom) != SCRIPTS[name].symptom}
    loud = {name: one for name, one in missed.items() if name in QUIET}
    wrong = {name: one for name, one in missed.items() if one and name not in QUIET}

    assert len(SCRIPTS) - len(QUIET) >= 40 and len(QUIET) >= 10
    assert len(missed) - len(loud) <= MISSED, missed
    assert len(wrong) <= WRONG, wrong
    assert len(loud) <= LOUD, loud


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_one_edit_of_its_base(name: str) -> None:
    """It compiles, and differs from all others."""
    text = SCRIPTS[name].text
    compile(text, f"{name}.py", "exec")

    assert [other for other, one in SCRIPTS.items() if one.text == text] == [name]
