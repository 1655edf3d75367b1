"""Releases of which nothing is reported: each is compared with the next, and each red metric has a cause."""

from pathlib import Path

import msgspec
import pytest
from replays import CELL, NORM, seen

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import scripts
from perfsuite.cli.main import main
from perfsuite.environments.requirements import pinned
from perfsuite.features.prove.commands import replay as command
from perfsuite.features.prove.replay import regression
from perfsuite.features.prove.replay.neighbours import Audit, Chain, Neighbours, RedCause, all_neighbours, reds
from perfsuite.features.prove.replay.replay_page import neighbour_sections, neighbour_summary
from perfsuite.records.verdict import Status
from perfsuite.run.releases_compared import load, save

CHAIN = Chain(library="lib", releases="1 2 3", workloads=[CELL], beside="other==1")
ONE_TWO, TWO_THREE = ("lib==1 other==1", "lib==2 other==1"), ("lib==2 other==1", "lib==3 other==1")
ENDED = seen(*TWO_THREE, outcomes=("fits", "failed"), reasons=("", "It died."))


def audited(*audits):
    return Neighbours(chains=[CHAIN], audits=[Audit(evidence="tried", **audit) for audit in audits])


def test_each_release_is_compared_with_the_next():
    """With what is installed beside it."""
    (trials,) = audited().trials().values()

    assert [trial.pair for trial in trials] == [ONE_TWO, TWO_THREE]
    assert audited().trials(["another"]) == {}


def test_chains_of_one_workload_add_up():
    """Older releases are in a chain of their own."""
    both = Neighbours(chains=[CHAIN, Chain(library="lib", releases="7 8", workloads=[CELL], beside="other==1")])

    assert [[trial.pair[1][:6] for trial in alike] for alike in both.trials().values()] == [
        ["lib==2", "lib==3", "lib==8"]
    ]


def test_the_tables_name_what_there_is():
    """Exact releases, and cells of the catalog or of the collection's scripts; no pair is there twice."""
    catalog = Catalog(extra_models=scripts(regression.commands(), Path()))
    trials = [trial for alike in all_neighbours().trials().values() for trial in alike]

    assert len(trials) >= 200
    assert len({(trial.pair, trial.cell) for trial in trials}) == len(trials)
    for trial in trials:
        assert all(pinned(text) for side in trial.pair for text in side.split())
        assert parse_cell(trial.cell, catalog).id == trial.cell


def test_an_audit_is_of_a_red():
    """None is left over when a rule has been mended."""
    neighbours, records = all_neighbours(), load(command.NEIGHBOURS)
    causes = [(one, metric) for one in records for metric in reds(one)]

    for audit in neighbours.audits:
        assert any(audit.is_of(*red) for red in causes), audit


@pytest.mark.parametrize(
    ("audits", "text"),
    [
        ([], "1 not looked into"),
        ([{"release": "lib==3", "cause": RedCause.MATTERS}], "1 by a change that matters (50.0 %)"),
        ([{"release": "lib==2", "cause": RedCause.MATTERS}], "1 not looked into"),
        (
            [{"release": "lib==3", "cause": RedCause.FALSE_ALARM, "metrics": ["gradient_norm"]}],
            "1 by a false alarm (50.0 %)",
        ),
        ([{"release": "lib==3", "cause": RedCause.MATTERS, "metrics": ["loss"]}], "1 not looked into"),
        (
            [{"release": "lib==3", "cause": RedCause.MATTERS, "workloads": ["gpt2"]}],
            "1 by a change that matters (50.0 %)",
        ),
        ([{"release": "lib==3", "cause": RedCause.MATTERS, "workloads": ["t5"]}], "1 not looked into"),
    ],
)
def test_a_red_has_the_cause_of_its_audit(audits, text):
    """By the newer release, the metric and the beginning of the cell's id."""
    records = [seen(*ONE_TWO), seen(*TWO_THREE, NORM)]

    assert neighbour_summary(audited(*audits), records) == f"Of 2 pairs that were compared, 1 are red: {text}."


def test_an_end_is_red():
    """The newer release ends the workload; if the older one does, nothing is compared."""
    assert list(reds(ENDED)) == ["ends"]
    text = "\n".join(neighbour_sections(audited(), [seen(*ONE_TWO, outcomes=("failed", "fits")), ENDED]))

    assert "Of 1 pairs that were compared, 1 are red: 1 not looked into." in text
    assert "| ends: `It died.` | not looked into |" in text


def test_what_got_better_is_not_red():
    """Nor is what does not matter."""
    lines = [msgspec.structs.replace(NORM, status=status) for status in (Status.IMPROVED, Status.IMMATERIAL)]

    assert reds(seen(*ONE_TWO, *lines)) == {}


@pytest.mark.parametrize(("cause", "code"), [(None, 1), (RedCause.FALSE_ALARM, 1), (RedCause.MATTERS, 0)])
def test_a_red_that_is_explained_is_no_error(tmp_path, monkeypatch, capsys, cause, code):
    """``perfsuite replay --neighbours`` fails while a red is a false alarm or not looked into."""
    neighbours = audited(*[{"release": "lib==3", "cause": cause}] * (cause is not None))
    monkeypatch.setattr(command, "all_neighbours", lambda: neighbours)
    save(tmp_path / "n.jsonl", [seen(*ONE_TWO), seen(*TWO_THREE, NORM)])

    assert main(["replay", "--neighbours", "--list", "--file", str(tmp_path / "n.jsonl")]) == code
    assert "gradient norm" in capsys.readouterr().out
