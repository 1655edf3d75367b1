"""``perfsuite notify --propose``: the new and improved cells of reports as one pull request of baselines."""

import argparse
import itertools
import os
from pathlib import Path

from perfsuite.baselines.store import Store
from perfsuite.cli.report_options import files_of, say_missing
from perfsuite.cli.shared_options import catalog_of, store_of
from perfsuite.environments import git
from perfsuite.errors import UsageError
from perfsuite.features.nights.forge_options import address_of_run, api_of, token_of
from perfsuite.features.nights.news import proposal
from perfsuite.features.nights.news.forge import opened
from perfsuite.records import report_lines
from perfsuite.run.gatekeeper import commit_of
from perfsuite.system.units import listed


def propose(arguments: argparse.Namespace) -> int:
    """Print what is proposed, and keep the pull request up to date. The working tree is not changed."""
    token = token_of(arguments.github, "contents and pull requests") if arguments.github else ""
    catalog, store = catalog_of(arguments), store_of(arguments)
    reports = list(itertools.chain.from_iterable(map(files_of, arguments.reports)))
    if not reports:
        raise UsageError(f"{listed(arguments.reports)} has no report of pytest --perf-report (.jsonl).")
    if say_missing(reports):
        raise UsageError("Nothing is proposed from a run of which a part is missing: run it again.")
    made = proposal.ForgeProposal.of(result for report in reports for result in report_lines.read_measured(report))
    for cell, result in made.accepted.items():
        if store.load(cell) != result.baseline:
            raise UsageError(f"{cell} was compared with another baseline than the one here: check out the same commit.")
    kinds = [f"{proposal.kind_of(result)} {cell}" for cell, result in made.accepted.items()]
    if not arguments.github:
        print("\n".join(kinds) or "Nothing to propose.")
        return 0

    commit, root = _place(store)
    with opened(arguments.github, token, api_of()) as repository:
        pull = proposal.open_pull(repository)
        before = proposal.proposed_before(repository, pull, commit, root, store) if pull else []
        made.keep(before, store)
        here = address_of_run()
        if not made.accepted and not made.kept:
            print(proposal.close(pull, here) if pull else "Nothing to propose.")
            return 0
        print("\n".join([*kinds, *(f"from before {cell}" for cell in made.kept)]))
        if pull and made.is_there(before):
            print(f"unchanged #{pull.number} {pull.title}")
            return 0
        files = made.files(store, commit_of(store.root), catalog, here or "proposed by hand")
        named = {f"{root}/{path.as_posix()}": text for path, text in files.items()}
        metrics = list(catalog.all("metric").values())
        proposal.move_branch(repository, commit, named, made.title)
        print(proposal.put(repository, pull, made.title, made.body(metrics, here)))
    return 0


def _place(store: Store) -> tuple[str, str]:
    """The commit that was measured, and the folder of the baselines in its repository. Raises UsageError outside."""
    folder = store.root.parent
    commit, top = git.commit_of("HEAD", folder), git.repository_of(folder)
    if not commit:
        raise UsageError(f"{store.root} is in no git repository with a commit, so there is nothing to propose it to.")
    return commit, Path(os.path.relpath(store.root.resolve(), top)).as_posix()
