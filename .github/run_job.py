#!/usr/bin/env python
"""Run the commands of a workflow's job here, exactly as written, in a fresh clone of the last commit.

    .github/run_job.py tests static --set matrix.check=lint
    .github/run_job.py gate measured --artifacts /tmp/artifacts
    .github/run_job.py comment render --artifacts /tmp/artifacts --set github.event.workflow_run.conclusion=failure

A step that uses an action of this repository is that action's own steps. Of others' actions, checkout is the clone,
setup-python a new virtual environment, and artifacts go to and come from the folder of --artifacts. A step
that needs GitHub's token, another action, a machine or an unknown value is listed as not run, with the reason.
Exit code 1 if a step has failed, 2 if there is no such job or it cannot be run here.
"""

import argparse
import fnmatch
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
SECRET = re.compile(r"secrets\..*|github\.token")
EMPTY = re.compile(r"(steps|inputs|env)\..*")  # empty on GitHub if a step was not run or an input was not given
ALWAYS, ON_SUCCESS, ON_FAILURE = ("always()", "!cancelled()"), ("", "success()"), ("failure()",)
NOT_OURS = re.compile(r"PYTHON.*|VIRTUAL_ENV|PYTEST_.*|GITHUB_.*|TOX_.*|PERFSUITE_.*")  # must not reach a job
SHELLS = {None: ["bash", "-e"], "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}  # as GitHub calls them
INDEXES = ("PIP_EXTRA_INDEX_URL",)  # a machine has its own
RAN, FAILED = "ran", "FAILED"


class NotRun(Exception):
    """A step that only GitHub can run, with the reason."""


class Job:
    """A running job: the values of its expressions, its environment, and the outcomes of its steps."""

    def __init__(self, folder: Path, artifacts: Path | None, context: dict[str, str]) -> None:
        self.folder, self.artifacts, self.workspace = folder, artifacts, folder / "workspace"
        self.summary = folder / "summary.md"
        self.log: list[tuple[str, float, str]] = []
        self.failed = False
        (folder / "temp").mkdir()
        self.context = {"runner.temp": str(folder / "temp"), "github.workspace": str(self.workspace)} | context
        self.environment = {name: value for name, value in os.environ.items() if not NOT_OURS.fullmatch(name)} | {
            "CI": "true",
            "GITHUB_RUN_ID": "0",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "RUNNER_TEMP": str(folder / "temp"),
        }

    def fill(self, value: Any) -> str:
        """The text with its expressions replaced. Raises NotRun for one that is unknown here."""
        return EXPRESSION.sub(lambda match: self._known(match[1]), text_of(value))

    def _known(self, name: str) -> str:
        if name in self.context:
            return self.context[name]
        if EMPTY.fullmatch(name):
            return ""
        raise NotRun("needs GitHub's token" if SECRET.fullmatch(name) else f"needs a value: --set {name}=…")

    def run(self, steps: list[dict[str, Any]], defaults: dict[str, str], inside: str = "") -> None:
        """Run each step in turn; after a failure only those whose condition allows it."""
        for step in steps:
            name = inside + (step.get("name") or step.get("uses") or step["run"].splitlines()[0])
            begun = time.monotonic()
            try:
                outcome = self._step(step, defaults, name)
            except NotRun as reason:
                outcome = f"not run: {reason}"
            if outcome == FAILED and not step.get("continue-on-error"):
                self.failed = True
            if "id" in step:
                told = "failure" if outcome == FAILED else "skipped" if outcome.startswith("not run") else "success"
                self.context[f"steps.{step['id']}.outcome"] = told
            self.log.append((name, time.monotonic() - begun, outcome))

    def _step(self, step: dict[str, Any], defaults: dict[str, str], name: str) -> str:
        condition = EXPRESSION.sub(r"\1", text_of(step.get("if")))
        if condition not in (*ALWAYS, *ON_SUCCESS, *ON_FAILURE):
            raise NotRun(f"GitHub decides whether {condition}")
        if condition not in ALWAYS and self.failed != (condition in ON_FAILURE):
            raise NotRun("a step before it failed" if self.failed else "no step before it failed")
        if "uses" in step:
            return self._action(step, name)
        shell, script = step.get("shell", defaults.get("shell")), self.folder / "step.sh"
        if shell not in SHELLS:
            raise NotRun(f"its shell is {shell}")
        (output := self.folder / "output").write_text("")
        environment = self.environment | {key: self.fill(value) for key, value in step.get("env", {}).items()}
        environment["GITHUB_OUTPUT"] = str(output)
        script.write_text(self.fill(step["run"]))
        cwd = self.workspace / self.fill(step.get("working-directory", defaults.get("working-directory")))
        print(f"\n=== {name}", flush=True)
        done = subprocess.run([*SHELLS[shell], script], cwd=cwd, env=environment, check=False)
        for key, value in assignments(output.read_text()):
            self.context[f"steps.{step.get('id')}.outputs.{key}"] = value
        return FAILED if done.returncode else RAN

    def _action(self, step: dict[str, Any], name: str) -> str:
        given = {key: self.fill(value) for key, value in step.get("with", {}).items()}
        if step["uses"].startswith("./"):
            return self._composite(self.workspace / step["uses"], given, step.get("id"), name)
        action = step["uses"].partition("@")[0]
        if action == "actions/checkout":
            return "the clone"
        if action == "actions/setup-python":
            return self._python(given["python-version"])
        if action in ("actions/upload-artifact", "actions/upload-pages-artifact"):
            return self._upload(given.get("name", "github-pages"), given["path"])
        if action == "actions/download-artifact":
            return self._download(given)
        raise NotRun(f"{action} needs GitHub")

    def _composite(self, folder: Path, given: dict[str, str], step_id: str | None, name: str) -> str:
        """The steps of an action of this repository; they see neither the job's inputs nor its steps."""
        action = yaml.safe_load((folder / "action.yml").read_text())
        outer, before = self.context, self.failed
        inputs = {key: text_of(one.get("default")) for key, one in action.get("inputs", {}).items()} | given
        self.context = {key: value for key, value in outer.items() if not key.startswith(("inputs.", "steps."))}
        self.context |= {f"inputs.{key}": value for key, value in inputs.items()}
        self.environment["GITHUB_ACTION_PATH"] = str(folder.resolve())
        self.run(action["runs"]["steps"], {}, inside=f"{name}: ")
        del self.environment["GITHUB_ACTION_PATH"]
        outputs = {key: self.fill(one["value"]) for key, one in action.get("outputs", {}).items()}
        self.context = outer | {f"steps.{step_id}.outputs.{key}": value for key, value in outputs.items()}
        return FAILED if self.failed and not before else RAN

    def _python(self, version: str) -> str:
        *_, version = version.split()  # the last of several runs; the others are only installed
        if version != ".".join(map(str, sys.version_info[:2])):
            raise SystemExit(f"run_job.py: the job asks for Python {version}: run this with python{version}.")
        subprocess.run([sys.executable, "-m", "venv", self.folder / "python"], check=True)
        self.environment["PATH"] = f"{self.folder / 'python' / 'bin'}{os.pathsep}{self.environment['PATH']}"
        return "a new virtual environment"

    def _upload(self, name: str, path: str) -> str:
        found = sorted(map(Path, glob.glob(str(self.workspace / path))))  # an absolute path stays itself
        if not found:
            return f"{path} does not exist: nothing to keep"
        if self.artifacts is None:
            return f"{path} exists"
        target = self.artifacts / name
        shutil.rmtree(target, ignore_errors=True)
        for one in found:
            if one.is_dir():
                shutil.copytree(one, target, dirs_exist_ok=True)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(one, target)
        return f"kept as {target}"

    def _download(self, given: dict[str, str]) -> str:
        pattern = given.get("pattern") or given["name"]
        found = (
            [one for one in sorted(self.artifacts.glob("*")) if fnmatch.fnmatch(one.name, pattern)]
            if self.artifacts
            else []
        )
        if not found:
            raise NotRun(f"no artifact {pattern}: give a folder with one as --artifacts")
        for one in found:
            nested = one.name if len(found) > 1 else ""  # one alone goes straight into the folder, as of v5
            shutil.copytree(one, self.workspace / given["path"] / nested, dirs_exist_ok=True)
        return f"took {', '.join(one.name for one in found)}"


def text_of(value: Any) -> str:
    """A value of YAML as GitHub writes it: true, not True; nothing for null."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """``name=value`` and ``name<<END … END``, as steps write them to GITHUB_OUTPUT."""
    lines = iter(text.splitlines())
    for line in lines:
        name, mark, end = line.partition("<<")
        if mark and "=" not in name:
            yield name, "\n".join(iter(lambda end=end: next(lines), end))
        else:
            name, _, value = line.partition("=")
            yield name, value


def self_hosted(job: dict[str, Any]) -> bool:
    """Whether the job needs a self-hosted machine."""
    return "self-hosted" in text_of(job["runs-on"])


def main() -> int:
    """Run one job and print the outcome of every step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workflow", help="A file of .github/workflows/, without its ending.")
    parser.add_argument("job", help="A job of the workflow.")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="The value of an expression.")
    parser.add_argument("--artifacts", type=Path, metavar="FOLDER", help="Folder of the artifacts.")
    parser.add_argument("--self-hosted", action="store_true", help="This is the machine that a self-hosted job needs.")
    parser.add_argument("--repository", default=".", metavar="FOLDER", help="The repository to clone (.).")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="run-job-") as folder:
        workspace = Path(folder, "workspace")
        subprocess.run(["git", "clone", "--quiet", arguments.repository, workspace], check=True)
        path = workspace / ".github" / "workflows" / f"{arguments.workflow}.yml"
        if not path.exists():
            known = ", ".join(sorted(one.stem for one in path.parent.glob("*.yml")))
            parser.error(f"no workflow {arguments.workflow}; known: {known}")
        workflow = yaml.safe_load(path.read_text())
        if arguments.job not in workflow["jobs"]:
            parser.error(f"{arguments.workflow} has no job {arguments.job}; it has {', '.join(workflow['jobs'])}")
        job = workflow["jobs"][arguments.job]
        if self_hosted(job) and not arguments.self_hosted:
            parser.error(f"the job needs a self-hosted machine, {job['runs-on']}: on one, give --self-hosted")
        artifacts = arguments.artifacts.absolute() if arguments.artifacts else None
        here = Job(Path(folder), artifacts, dict(one.split("=", 1) for one in arguments.set))
        variables = workflow.get("env", {}) | job.get("env", {})
        here.environment |= {key: here.fill(one) for key, one in variables.items() if key not in INDEXES}
        defaults = (workflow.get("defaults", {}) | job.get("defaults", {})).get("run", {})
        here.run(job["steps"], defaults)
        print(f"\n=== steps of {arguments.workflow}: {arguments.job}")
        for name, seconds, outcome in here.log:
            print(f"{seconds:8.1f} s  {name}: {outcome}")
        for name, value in job.get("outputs", {}).items():
            print(f"=== output {name}\n{here.fill(value)}")
        if here.summary.exists():
            print(f"=== the job's summary\n{here.summary.read_text()}")
    return 1 if here.failed else 0


if __name__ == "__main__":
    sys.exit(main())
