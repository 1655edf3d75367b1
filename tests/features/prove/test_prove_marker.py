"""``@pytest.mark.perf_prove``: a broken relation makes the test of a script's cell red."""

import pytest

SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(60):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TEST = """
import pytest
@pytest.mark.perf_script("train.py")
@pytest.mark.perf_prove("trained")
def test_train(perf_cell):
    perf_cell.check()
"""
NEW = ("--perf", "--perf-steps=1", "-o", "perf_warmup=1", "-o", "perf_launches=1", "--perf-update=new")


@pytest.mark.parametrize(
    ("edit", "outcome", "said"),
    [
        (("    optimizer.zero_grad()\n", ""), {"failed": 1}, "*trained  BROKEN *weight*that of the step before it*"),
        pytest.param(("lr=0.1", "lr=0.2"), {"passed": 1}, "*1 passed*", marks=pytest.mark.slow),
    ],
)
def test_a_marked_relation_is_guarded(pytester, edit, outcome, said):
    """After its cell is checked."""
    assert SCRIPT.count(edit[0]) == 1
    (pytester.path / "train.py").write_text(SCRIPT.replace(*edit))
    pytester.makepyfile(test_train=TEST)
    result = pytester.runpytest_subprocess(*NEW)

    result.assert_outcomes(**outcome)
    result.stdout.fnmatch_lines([said])


def test_a_cell_without_a_script_has_no_relations(pytester):
    """And the marker says so."""
    lines = TEST.replace('perf_script("train.py")', 'perf_cell("gpt2_tiny-single-cpu_x1")')
    pytester.makepyfile(test_train=lines)
    result = pytester.runpytest_subprocess(*NEW)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*@pytest.mark.perf_prove needs a cell of one, as perf_script makes it.*"])
