"""``perfsuite notify``: what reports say as issues, one for each cause, as a message, or as proposed baselines."""

import argparse
import os
from pathlib import Path

from perfsuite.cli.report_options import files_of, say_missing
from perfsuite.cli.shared_options import add_shared
from perfsuite.errors import UsageError
from perfsuite.features.nights.forge_options import add_github, address_of_run, api_of, token_of
from perfsuite.features.nights.news import forge, webhook
from perfsuite.features.nights.news.proposal import BRANCH
from perfsuite.features.nights.news.regressions import News
from perfsuite.features.nights.propose import propose
from perfsuite.features.upgrade.upgrade_outcome import UpgradeReport
from perfsuite.records import codec, report_lines
from perfsuite.settings.keys import BASELINES, CATALOG, KERNELS

HELP = "Keep an issue for each cause of regressions, send a message, or propose the baselines of better cells."
QUESTION = "history"
EXAMPLES = (
    "perfsuite notify report.jsonl",
    "perfsuite notify --webhook env:SLACK_URL report.jsonl",
    "perfsuite notify --propose --github lab/code report.jsonl",
)
PAGE = "ci"
DRY = "Dry run: nothing is sent. This is what --github and --webhook report:"
VARIABLE = "env:"  # before the name of a variable that has the address


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    text = "Reports of pytest --perf-report (.jsonl) or perfsuite upgrade --json (.json), or folders of them."
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT", help=text)
    add_github(parser, "Keep one issue per cause there. Without it and --webhook, only print.")
    text = (
        "Instead of issues, keep one pull request with the baselines of new and improved cells, which "
        f"--perf-update=new,improved accepted, from the branch {BRANCH}."
    )
    parser.add_argument("--propose", action="store_true", help=text)
    text = (
        "Send one message there about what is newly red or gone. env:NAME takes the address from that variable, so "
        "that no list of processes shows it."
    )
    parser.add_argument("--webhook", metavar="URL", help=text)
    add_shared(parser, BASELINES, KERNELS, CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Notify the services, and print what was done."""
    if arguments.propose:
        if arguments.webhook:
            raise UsageError("--propose makes a pull request: leave out --webhook.")
        return propose(arguments)
    token = token_of(arguments.github, "issues") if arguments.github else ""
    address = _webhook(arguments.webhook) if arguments.webhook else ""
    incomplete = say_missing(reports_of(arguments.reports))
    news, here = read(arguments.reports), address_of_run()
    red = news.red()
    compared = red or news.good or news.tried
    quiet = "Nothing is red." if compared else "No cell was compared, so nothing is known."
    if arguments.github:
        with forge.opened(arguments.github, token, api_of()) as repository:
            done = forge.keep_issues(news, repository, here)
        lines = [*map(str, done), forge.say_left_out(sum(one.what == "left out" for one in done))]
    else:
        if not address:
            print(DRY)
        shown = ["\n  ".join([one.title, *one.below]) for one in red.values()]
        lines = shown if address else [*shown[: forge.MOST], forge.say_left_out(len(shown[forge.MOST :]))]
    print("\n".join(filter(None, lines)) or quiet)
    if address:
        if arguments.github:
            message = webhook.of_issues(done, here)
            if message:
                webhook.send(message, address)
        else:
            message = webhook.send_news(news, address, here)
        print(f"--webhook: {'sent' if message else 'nothing new'}")
    return 1 if incomplete or not compared else 0


def reports_of(paths: list[Path]) -> list[Path]:
    """Those of pytest."""
    return [file for path in paths for file in files_of(path, (".jsonl",)) if file.suffix == ".jsonl"]


def read(reports: list[Path]) -> News:
    """The news of all reports. Raises FileError for one that cannot be read."""
    news = News()
    for path in reports:
        for file in files_of(path, (".jsonl", ".json")):
            if file.suffix == ".json":
                news.add_upgrade(codec.read(file, UpgradeReport))
            else:
                news.add_run(report_lines.read_report(file))
    return news


def _webhook(text: str) -> str:
    """The address itself. Raises UsageError, without the address, for one that is none."""
    named = text.removeprefix(VARIABLE)
    address = os.environ.get(named, "") if text.startswith(VARIABLE) else text
    if not named:
        raise UsageError("--webhook env: names no variable: write env:NAME, e.g. env:SLACK_URL.")
    if not address:
        raise UsageError(f"--webhook takes its address from {named}, but that variable is empty.")
    if not address.startswith(("http://", "https://")):
        where = f"the variable {named}" if text.startswith(VARIABLE) else f"{text!r}"
        raise UsageError(f"--webhook must be an http address or env:NAME, not {where}.")
    return address
