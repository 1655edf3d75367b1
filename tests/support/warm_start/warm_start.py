"""Starts a program of perfsuite as a fork of a process that has imported the same libraries already.

``python -m perfsuite.launch.server …`` imports torch and transformers for seconds. Where PYTHONPATH has this folder, it
becomes a *stub* instead: it hands its files, arguments and variables to the *template*, whose fork is the program, and
lives as long as that. The template is one per everything that imports may depend on: variables, cores, limits, the
control group. The first stub starts it, as a process of its own session. It ends with pytest.

A fork has the template's hash seed and addresses, and another parent than the program's caller: tests of either leave
this folder out.
"""

import array
import ast
import atexit
import contextlib
import errno
import gc
import hashlib
import importlib
import itertools
import json
import os
import re
import resource
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

OWNER = "PERFSUITE_TESTS"  # the process id of pytest, of the one that started the workers
HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = {  # and the module that has its main()
    "perfsuite.launch.server": "perfsuite.launch.server",
    "perfsuite.features.predict.trace": "perfsuite.features.predict.trace.__main__",
}
ALSO = ("torch._dynamo", "torch.distributed.fsdp", "accelerate", "deepspeed")  # of most cells' engines
# What no import reads, or what the program sets for itself before it is read.
FREE = {"HOME", "USERPROFILE", "PY_COLORS", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES", "TERM", "USER"}
FREE |= {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}  # of launchers
FREE_PREFIXES = ("PERFSUITE_", "PYTEST_", "SLURM", "LOCAL_", "GROUP_", "ROLE_", "TORCHELASTIC_")
MOST_BYTES = 1 << 20
START_SECONDS = 120.0


def variables() -> dict[str, str]:
    """Those of a template: what an import may read, without this folder."""
    kept = {k: v for k, v in os.environ.items() if k == OWNER or (k not in FREE and not k.startswith(FREE_PREFIXES))}
    path = [one for one in kept.pop("PYTHONPATH", "").split(os.pathsep) if one not in ("", HERE)]
    return kept | ({"PYTHONPATH": os.pathsep.join(path)} if path else {})


def address(module: str) -> str:
    """The template's socket in Linux's abstract namespace."""
    alike = [
        module in PROGRAMS,
        sorted(variables().items()),
        sys.executable,
        os.getuid(),
        sorted(os.sched_getaffinity(0)),
        os.getpriority(os.PRIO_PROCESS, 0),
        [resource.getrlimit(getattr(resource, name)) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")],
        _text("/proc/self/cgroup"),
    ]
    return f"\0perfsuite-tests-{hashlib.sha256(repr(alike).encode()).hexdigest()[:32]}"


def _text(path: str) -> str:
    with contextlib.suppress(OSError), open(path) as file:
        return file.read()
    return ""


def stub(module: str, arguments: list[str]) -> None:
    """Be that program, if there is a template or can be one; return otherwise."""
    if OWNER not in os.environ or arguments[:1] == ["cuda"] or "PERFSUITE_EMULATED" in os.environ:
        return  # a process that has touched CUDA cannot fork ranks
    if module not in PROGRAMS and not (os.environ.get("PERFSUITE_SCRIPT") and _is_script(module)):
        return
    connection = _connect(address(module), *([] if module in PROGRAMS else ["scripts"]))
    if connection is None:
        return
    files = sorted({int(name) for name in os.listdir("/proc/self/fd")} - {connection.fileno()})
    files = [file for file in files if file < 3 or (_is_open(file) and os.get_inheritable(file))]
    request = {"module": module, "arguments": arguments, "variables": dict(os.environ), "files": files}
    text = json.dumps(request | {"folder": os.getcwd(), "path": sys.path}).encode()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: connection.send(str(number).encode()))
    if module == "perfsuite.features.predict.trace":
        from perfsuite.system.processes import end_with_parent

        end_with_parent()
    connection.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
    for file in files:
        os.close(file)  # as if this process did not exist
    answer = connection.recv(64)
    status = int(answer) if answer else signal.SIGKILL
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) in (signal.SIGTERM, signal.SIGINT):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _is_script(name: str) -> bool:
    """Whether it begins with imports, of torch or what imports torch among them: nothing that it does precedes them. A
    spawned process imports the main module anew.
    """
    if not os.path.isfile(name) or not (name.endswith(".py") or os.path.basename(name) == "torchrun"):
        return False
    with open(name, "rb") as file:
        text = file.read()
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return False
    after = itertools.dropwhile(lambda one: isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant), body)
    imports = itertools.takewhile(lambda one: isinstance(one, ast.Import | ast.ImportFrom), after)
    named = {word for one in imports for word in re.findall(r"\w+", ast.unparse(one))}
    return bool(named & {"torch", "transformers", "deepspeed"}) and b"spawn" not in text


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def _connect(name: str, *kind: str) -> socket.socket | None:
    """To the template, which is started if there is none; None if it cannot live here."""
    deadline = time.monotonic() + START_SECONDS
    template: subprocess.Popen[bytes] | None = None
    while time.monotonic() < deadline and not (template and template.poll()):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(name)
        except OSError:
            connection.close()
        else:
            if template:
                template.wait()  # else the script has a child that has ended, as far as perfsuite can see
            return connection
        template = template or subprocess.Popen(
            [sys.executable, os.path.join(HERE, "warm_start.py"), name[1:], *kind],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=variables(),
            start_new_session=True,
        )
        time.sleep(0.01)
    return None


class Template:
    """Imports, then forks a program per stub."""

    def __init__(self, name: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(f"\0{name}")  # raises OSError if another has it
        self.listener.listen(64)
        self.owner = os.pidfd_open(int(os.environ[OWNER]))
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.owner, selectors.EVENT_READ)
        self.programs: dict[int, tuple[int, socket.socket]] = {}  # by the pidfd

    def serve(self) -> None:
        """Until pytest has ended."""
        while True:
            for key, _ in self.selector.select():
                if key.fd == self.owner:
                    for pid, _ in self.programs.values():
                        _kill(pid)
                    return
                if key.fd == self.listener.fileno():
                    self.start(self.listener.accept()[0])
                elif key.fd in self.programs:
                    self.end(key.fd)
                else:
                    self.hear(key.data)

    def start(self, connection: socket.socket) -> None:
        """Fork the program of a stub."""
        text, files, *_ = socket.recv_fds(connection, MOST_BYTES, 250)
        if not text:
            connection.close()
            return
        pid = os.fork()
        if not pid:
            status = 70
            try:
                self.selector.close()
                for one in (self.listener, connection, *(other for _, other in self.programs.values())):
                    one.close()
                for number in (self.owner, *self.programs):
                    os.close(number)
                status = run(json.loads(text), files)
            finally:
                os._exit(status)
        for file in files:
            os.close(file)
        ended = os.pidfd_open(pid)
        self.programs[ended] = pid, connection
        self.selector.register(ended, selectors.EVENT_READ)
        self.selector.register(connection, selectors.EVENT_READ, ended)

    def hear(self, ended: int) -> None:
        """A stub's signal is the program's. A killed stub kills it."""
        pid, connection = self.programs[ended]
        with contextlib.suppress(OSError):
            if said := connection.recv(16):
                os.kill(pid, int(said))
                return
        _kill(pid)
        self.selector.unregister(connection)

    def end(self, ended: int) -> None:
        """Tell the stub."""
        pid, connection = self.programs.pop(ended)
        self.selector.unregister(ended)
        os.close(ended)
        with contextlib.suppress(KeyError):
            self.selector.unregister(connection)
        with contextlib.suppress(OSError):
            connection.send(str(os.waitpid(pid, 0)[1]).encode())
        connection.close()


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def run(request: dict, files: list[int]) -> int:
    """Be the program; returns its exit status."""
    os.setsid()
    high = [os.dup2(file, 200 + number, inheritable=False) for number, file in enumerate(files)]
    for file in files:
        os.close(file)
    for file, number in zip(high, request["files"], strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    tempfile.tempdir = None
    signal.set_wakeup_fd(-1)
    status = 0
    try:
        if request["module"] in PROGRAMS:
            program(request["module"], request["arguments"])
        else:
            script(request)
    except SystemExit as error:
        if error.code is not None:
            status = error.code if isinstance(error.code, int) else 1
            print(error.code, file=sys.stderr) if not isinstance(error.code, int) else None
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    vars(threading)["_shutdown"]()  # waits for its threads, as Python does at its end
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    return status


def program(module: str, arguments: list[str]) -> None:
    """Be the program in this process."""
    sys.argv = [module, *arguments]
    if module == "perfsuite.launch.server":
        be_quick()
    vars(sys.modules["__main__"]).pop("__file__")  # it is none of a rank's files
    importlib.import_module(PROGRAMS[module]).main()


def script(request: dict) -> None:
    """Be a script that perfsuite measures, which finds torch imported and perfsuite attached to it, and to what came
    with torch.
    """
    from perfsuite.rank.script import attached, boot

    sys.argv = [request["module"], *request["arguments"]]
    sys.path[:] = [os.path.dirname(os.path.abspath(request["module"])), *request["path"]]
    importlib.invalidate_caches()
    boot.boot()
    for name in dict.fromkeys(("torch", *boot.AFTER)):
        if name in sys.modules:
            getattr(attached, boot.AFTER[name].partition(":")[2])(sys.modules[name])
    runpy.run_path(request["module"], run_name="__main__")


def be_quick() -> None:
    """Ranks measure the peak of their CPU, which no test compares, for a hundredth of the usual time."""
    from perfsuite.meters import _matmul_peak

    def check_output(command: Any, *args: Any, run: Any = subprocess.check_output, **kwargs: Any) -> Any:
        if command[0] == "numactl":  # ZeRO-3 starts it for every gradient
            raise FileNotFoundError
        return run(command, *args, **kwargs)

    vars(subprocess).update(check_output=check_output)
    vars(_matmul_peak).update(MATMUL_SIZES=(128,), MATMUL_SECONDS=1e-3)


def main() -> None:
    """Be a stub of the program with these arguments, or the template of that name."""
    if sys.argv[1] in PROGRAMS:
        stub(sys.argv[1], sys.argv[2:])
        program(sys.argv[1], sys.argv[2:])
        return
    try:
        template = Template(sys.argv[1])
    except OSError as error:
        sys.exit(error.errno != errno.EADDRINUSE)  # another was quicker
    if os.fork():
        os._exit(0)  # it is no child of a stub, whose children a test may count
    gc.disable()
    if sys.argv[2:]:
        modules: tuple[str, ...] = ("torch._dynamo", "torch.distributed.run", "perfsuite.rank.script.attached")
    else:
        from perfsuite.launch import server

        server.import_all("cpu")
        modules = (*ALSO, *PROGRAMS.values())
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    gc.enable()
    template.serve()


if __name__ == "__main__":
    main()
