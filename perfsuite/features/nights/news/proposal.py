"""New baselines as one pull request: of new and of improved cells, always on the same branch. A person merges it.

The branch is the measured commit and one commit on top of it. A cell that this report did not measure stays proposed;
one that it measured as good as its baseline, or worse, is proposed no longer. PyGithub talks to the server.
"""

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsuite.baselines.accept import baseline_of
from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import Store
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.cell_options import metrics_of
from perfsuite.records.baseline import Baseline
from perfsuite.records.result import Result
from perfsuite.records.verdict import Status
from perfsuite.show.text.markdown import code, render_markdown

BRANCH = "perfsuite-baselines"
MARK = "<!-- perfsuite proposal -->"
KINDS = ("new", "improved")


@dataclass
class ForgeProposal:
    """``accepted`` are the results that become baselines, by cell; ``kept`` are baselines of an earlier report."""

    accepted: dict[str, Result] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)
    kept: dict[str, Baseline] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Iterable[Result]) -> "ForgeProposal":
        """Of the last result of each cell. Only what its machine has accepted is proposed, after several launches."""
        last: dict[str, Result] = {}
        for result in sorted(
            results, key=lambda result: max([launch.date for launch in result.measurement.launches] or [""])
        ):
            last[result.measurement.cell] = result
        return cls({cell: one for cell, one in last.items() if one.updated and kind_of(one)}, set(last))

    def keep(self, proposed: Iterable[Baseline], store: Store) -> None:
        """Those that were proposed before, were not measured now, and are newer than what was merged since."""
        for baseline in proposed:
            there = store.load(baseline.cell)
            if baseline.cell not in self.measured and (there is None or there.date < baseline.date):
                self.kept[baseline.cell] = baseline

    def is_there(self, proposed: Iterable[Baseline]) -> bool:
        """Whether exactly these measurements are proposed already."""
        mine = {cell: result.measurement for cell, result in self.accepted.items()}
        mine |= {cell: baseline.measurement for cell, baseline in self.kept.items()}
        return mine == {baseline.cell: baseline.measurement for baseline in proposed}

    @property
    def title(self) -> str:
        """``Baselines: 2 new, 1 improved``."""
        kinds = [kind_of(one) for one in self.accepted.values()]
        counts = [f"{kinds.count(kind)} {kind}" for kind in KINDS if kind in kinds]
        return "Baselines: " + ", ".join([*counts, *([f"{len(self.kept)} from before"] if self.kept else [])])

    def body(self, metrics: Sequence[Metric], run: str) -> str:
        """Markdown: the verdicts of the measured cells, and the names of the others."""
        kept = [f"Proposed before, and not measured now: {', '.join(map(code, self.kept))}."] if self.kept else []
        note = "Regressions are never proposed: each has an issue."
        results = list(self.accepted.values())
        verdicts = [render_markdown(results, metrics)] if results else []
        return "\n\n".join(filter(None, [MARK, note, run, *kept, *verdicts]))

    def files(self, store: Store, commit: str, catalog: Catalog, reason: str) -> dict[Path, bytes]:
        """The changed files below the store's root: baselines and the ledger. Writes nothing there."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Store(Path(folder, "baselines"), store.kernels)
            if store.root.is_dir():
                shutil.copytree(store.root, copy.root)
            before = _contents(copy.root)
            for cell, baseline in self.kept.items():
                consent = Acceptance(how="propose", metrics=metrics_of(cell, catalog), reason=reason)
                copy.save(baseline, copy.load(cell), consent)
            for cell, result in self.accepted.items():
                metrics = metrics_of(cell, catalog)
                consent = Acceptance(how="propose", metrics=metrics, reason=reason)
                copy.save(baseline_of(result.measurement, commit, metrics), copy.load(cell), consent)
            return {name: text for name, text in _contents(copy.root).items() if before.get(name) != text}


def kind_of(result: Result) -> str:
    """``new`` or ``improved``; empty for any other. A new cell with wrong numbers is a regression."""
    if result.baseline is None:
        return "new" if result.verdict.status == Status.MISSING else ""
    return "improved" if result.verdict.status == Status.IMPROVED else ""


def proposed_before(repository: Any, pull: Any, commit: str, root: str, store: Store) -> list[Baseline]:
    """The baselines on the branch of an open pull request."""
    baselines = []
    for file in repository.compare(commit, pull.head.ref).files:
        path = Path(file.filename)
        if file.status != "removed" and path.suffix == ".json" and path.parent.parent == Path(root):
            text = repository.get_contents(file.filename, ref=pull.head.ref).decoded_content
            baselines.append(store.decode(text, path.stem, f"{file.filename} on {pull.head.ref}"))
    return baselines


def open_pull(repository: Any) -> Any:
    """The open pull request of the branch; None if there is none."""
    head = f"{repository.owner.login}:{BRANCH}"
    return next(iter(repository.get_pulls(state="open", head=head)), None)


def move_branch(repository: Any, commit: str, files: Mapping[str, bytes], title: str) -> None:
    """Move the branch to a commit of these files on top of ``commit``."""
    from github import GithubException, InputGitTreeElement

    parent = repository.get_git_commit(commit)
    elements = [InputGitTreeElement(path, "100644", "blob", text.decode()) for path, text in sorted(files.items())]
    tree = repository.create_git_tree(elements, base_tree=parent.tree)
    made = repository.create_git_commit(title, tree, [parent])
    try:
        repository.get_git_ref(f"heads/{BRANCH}").edit(made.sha, force=True)
    except GithubException as error:
        if error.status != 404:
            raise
        repository.create_git_ref(f"refs/heads/{BRANCH}", made.sha)


def put(repository: Any, pull: Any, title: str, body: str) -> str:
    """Update the pull request of the branch, or open one if there is none."""
    if pull is not None:
        pull.edit(title=title, body=body)
        return f"updated #{pull.number} {title}"
    made = repository.create_pull(base=repository.default_branch, head=BRANCH, title=title, body=body)
    return f"opened #{made.number} {title}"


def close(pull: Any, run: str) -> str:
    """Close a pull request that has nothing left to propose."""
    pull.create_issue_comment(" ".join(filter(None, ("Nothing is left to propose.", run))))
    pull.edit(state="closed")
    return f"closed #{pull.number} {pull.title}"


def _contents(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
