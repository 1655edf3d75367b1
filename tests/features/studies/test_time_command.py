"""``perfsuite time``: where it finds a cell's baseline, and what has no time to tell."""

from pathlib import Path

import pytest

from perfsuite.cli.main import main

BASELINES = Path(__file__).parents[3] / "baselines"
CELL = "gpt2_tiny-single-cpu_x1"


def test_it_finds_pytests_baselines(tmp_path, monkeypatch, capsys):
    """Those of the ini of the repository, from a folder below."""
    there = tmp_path / "some" / "where" / "cpu_x1" / f"{CELL}.json"
    for folder in (there.parent, tmp_path / "deep"):
        folder.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\nperf_baselines = some/where\n")
    there.write_bytes((BASELINES / "cpu_x1" / there.name).read_bytes())
    monkeypatch.chdir(tmp_path / "deep")

    assert main(["time", CELL, "--tokens", "1000000"]) == 0
    assert f"../some/where/cpu_x1/{CELL}.json" in capsys.readouterr().out


def test_a_compiled_step_has_no_operators_to_tell(tmp_path, capsys):
    """No snapshot of its storages, and no time of its operators: neither a file nor zero seconds."""
    pytest.importorskip("jax", reason="the extra `jax` is not installed")
    cell, file = "gpt2_tiny-jax_dp+nodrop-cpu_x2", tmp_path / "memory.pickle"

    assert main(["memory", cell, "--snapshot", str(file)]) != 0
    assert "has no snapshot: jax_dp: its step is compiled" in capsys.readouterr().err
    assert not file.exists()
    assert main(["time", cell, "--predict", "--baselines", str(BASELINES)]) != 0
    assert f"{cell} has no predicted step: jax_dp: its step is compiled" in capsys.readouterr().err
