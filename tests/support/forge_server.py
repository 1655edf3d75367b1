"""A stand-in of a forge: GitHub's API for one repository, ``lab/code``, and a webhook. It keeps all that it is told."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

TOKEN = "secret"
REPOSITORY = "/repos/lab/code"


class Forge(ThreadingHTTPServer):
    """Issues, two to a page; pull requests, commits and branches; and a webhook under ``/hook``.

    ``commits`` has (parent, {path: text}) by sha, ``branches`` a sha by name, and ``pushes`` each move of a branch.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.issues, self.comments, self.messages, self.pulls, self.pushes = [], [], [], [], []
        self.commits, self.branches = {}, {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def open(self):
        return [issue for issue in self.issues if issue["state"] == "open"]

    def open_pulls(self):
        return [pull for pull in self.pulls if pull["state"] == "open"]

    def proposed(self):
        """The files of the pull request's branch, by path."""
        return self.commits[self.branches["perfsuite-baselines"]][1]


class Answer(BaseHTTPRequestHandler):
    server: Forge

    def do(self):
        forge, parts = self.server, urlsplit(self.path)
        content = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
        if parts.path == "/hook":
            forge.messages.append(content)
            return self.say({})
        if self.headers.get("Authorization") != f"token {TOKEN}":
            return self.say({"message": "Bad credentials"}, 401)
        if parts.path == REPOSITORY:
            owner = {"login": "lab", "url": f"{forge.url}/users/lab"}
            here = {"url": f"{forge.url}{REPOSITORY}", "full_name": "lab/code", "default_branch": "main"}
            return self.say({**here, "owner": owner})
        kind, *names = parts.path.removeprefix(f"{REPOSITORY}/").split("/")
        return getattr(self, kind)(names, content, parts)

    do_GET = do_POST = do_PATCH = do  # noqa: N815 the names that http.server calls

    def issues(self, names, content, parts):
        forge = self.server
        if not names and self.command == "GET":
            return self.page([one for one in forge.open() if {"name": "perfsuite"} in one["labels"]], parts)
        if not names:
            number = len(forge.issues) + 1
            issue = {"number": number, "state": "open", "url": f"{forge.url}{parts.path}/{number}", **content}
            issue["labels"] = [{"name": name} for name in content["labels"]]
            forge.issues.append(issue)
            return self.say(issue, 201)
        number, *rest = names
        if rest:
            forge.comments.append((int(number), content["body"]))
            return self.say({"body": content["body"]}, 201)
        forge.issues[int(number) - 1] |= content
        return self.say(forge.issues[int(number) - 1])

    def pulls(self, names, content, parts):
        forge = self.server
        if not names and self.command == "GET":
            wanted = parse_qs(parts.query)["head"][0].partition(":")[2]
            return self.say([one for one in forge.open_pulls() if one["head"]["ref"] == wanted])
        if not names:
            number = len(forge.pulls) + 1
            address = f"{forge.url}{REPOSITORY}"
            urls = {"url": f"{address}/pulls/{number}", "issue_url": f"{address}/issues/{number}"}
            pull = {**content, **urls, "number": number, "state": "open", "head": {"ref": content["head"]}, "base": {}}
            forge.pulls.append(pull)
            return self.say(pull, 201)
        forge.pulls[int(names[0]) - 1] |= content
        return self.say(forge.pulls[int(names[0]) - 1])

    def git(self, names, content, parts):
        forge, kind = self.server, names[0]
        if kind == "trees":
            files = dict(forge.commits[content["base_tree"]][1])
            files |= {one["path"]: one["content"] for one in content["tree"]}
            sha = f"tree{len(forge.commits)}"
            forge.commits[sha] = None, files
            return self.say({"sha": sha}, 201)
        if kind == "commits" and self.command == "POST":
            sha = f"commit{len(forge.commits)}"
            forge.commits[sha] = content["parents"][0], forge.commits[content["tree"]][1]
            return self.say({"sha": sha, "message": content["message"]}, 201)
        if kind == "commits":
            return self.say({"sha": names[1], "tree": {"sha": names[1]}} if names[1] in forge.commits else {})
        name = names[-1] if self.command != "POST" else content["ref"].removeprefix("refs/heads/")
        if self.command == "GET" and name not in forge.branches:
            return self.say({"message": "Not Found"}, 404)
        if self.command != "GET":
            forge.branches[name] = content["sha"]
            forge.pushes.append((name, content["sha"]))
        address = f"{forge.url}{REPOSITORY}/git/refs/heads/{name}"
        return self.say({"ref": f"refs/heads/{name}", "url": address, "object": {"sha": forge.branches[name]}})

    def compare(self, names, content, parts):
        forge = self.server
        base, head = (forge.commits[forge.branches.get(name, name)][1] for name in names[0].split("..."))
        changed = [name for name in head if head[name] != base.get(name)]
        self.say({"files": [{"filename": name, "status": "modified"} for name in changed]})

    def contents(self, names, content, parts):
        forge, path = self.server, "/".join(names)
        text = forge.commits[forge.branches[parse_qs(parts.query)["ref"][0]]][1][path]
        here = {"path": path, "type": "file", "encoding": "base64", "url": f"{forge.url}{parts.path}"}
        self.say({**here, "content": base64.b64encode(text.encode()).decode()})

    def page(self, found, parts):
        number = int(parse_qs(parts.query).get("page", ["1"])[0])
        link = f'<{self.server.url}{parts.path}?page={number + 1}>; rel="next"'
        self.say(found[2 * number - 2 : 2 * number], head={"Link": link} if len(found) > 2 * number else {})

    def say(self, content, status=200, head=()):
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **dict(head)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def forge(monkeypatch, tmp_path):
    server = Forge()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("perfsuite.features.nights.news.forge.PAUSE", 0)
    monkeypatch.setenv("GITHUB_API_URL", server.url)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
