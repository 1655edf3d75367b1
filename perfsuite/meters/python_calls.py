"""Python calls: how many Python functions a step calls, by package; the evidence names functions and modules.

One step runs under a profile function (``sys.setprofile``) and under no dispatch mode or module hook, which would call
functions of torch themselves. It computes no gradient norm of perfsuite's own, just as a timed step. Calls of C
functions do not count; each time that a generator is resumed does. Counted are the packages whose versions a
measurement records; "yours" is everything else except the standard library and perfsuite itself. In a script, every
installed package has its own name.

The count repeats exactly. Garbage is not collected meanwhile, so no finalizer runs by chance. Other threads do not
count, and autograd runs CUDA's backward in the rank's own thread for this step. Comparisons (``__eq__``) do not count:
how often a hash table compares its keys depends on their addresses (DTensor's caches do so in C++). Nor does the
polling of a device, nor a progress bar, which draws by the clock. The count depends on the minor version of Python,
which compiles the same code to more or fewer calls (comprehensions are calls before 3.12).
"""

import contextlib
import gc
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import metadata
from types import CodeType, FrameType
from typing import Any

from perfsuite.catalog.definitions import OF_A_STEP, Metric
from perfsuite.catalog.processes import OF_STEPS
from perfsuite.rank.installed import tops
from perfsuite.rank.loaded import is_installed
from perfsuite.rank.meter import Meter, Order, by_part
from perfsuite.rank.phases import StepPhases
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import AT
from perfsuite.system.units import WHOLE

PACKAGES = ("torch", "transformers", "accelerate", "deepspeed")
OURS = "perfsuite"
YOURS = "yours"
# torch wraps functions here once its compiler is imported, which another cell of the same rank server may have done.
WRAPPERS = ("torch._dynamo", "torch._compile", "torch.compiler")
FINDERS = ("__editable__", "_distutils_hack")  # asked at each import, as packages happen to be installed
BY_CHANCE = frozenset({"__eq__", "query"})  # functions whose number of calls varies between launches
DRAWN = ("tqdm",)  # progress bars, which draw again when a tenth of a second has passed


class PythonCalls(Meter):
    """The innermost meter of its step."""

    processes = OF_STEPS
    order = Order.WITHIN_CLOCK
    watches = StepKind.CALLED

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        named = (*session.strategy.packages, *session.job.model.packages)
        self.packages = (*PACKAGES, *itertools.chain(*map(_modules_of, named)))
        self.calls: Counter[str] = Counter()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        import torch

        counter = CallCounter()
        with _uncollected(), torch.autograd.set_multithreading_enabled(False), counter.counting():
            yield
        self.called = frozenset(module for _, module in counter.known.values())
        self.calls = counter.by_function(self.packages, self.session.strategy.engine.own)

    def readings(self) -> dict[str, Reading]:
        return {"python_calls": by_part(self.calls, None)} if self.calls else {}


class CallCounter:
    """Counts the calls of Python functions in this thread, except those inside ``StepPhases.mark`` and BY_CHANCE, and
    those with which our hooks ask torch whether it compiles.
    """

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()  # by the code's address: code objects compare by their contents, slowly
        self.known: dict[int, tuple[CodeType, str]] = {}

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Inside, calls are counted, in every greenlet too. None are beside torch's own profiler, if it records stacks:
        only C code can put its function back.
        """
        before, profile = sys.getprofile(), self._profile()
        if before is not None and not callable(before):
            yield
            return
        with _in_greenlets(profile):
            sys.setprofile(profile)
            try:
                yield
            finally:
                sys.setprofile(before)

    def _profile(self) -> Callable[[FrameType, str, Any], None]:
        from torch.compiler import is_compiling

        counts, known, mark, asks = self.counts, self.known, StepPhases.mark.__code__, is_compiling.__code__
        silent: FrameType | None = None

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal silent
            if silent is not None:
                if event == "return" and frame is silent:
                    silent = None
            elif event == "call":
                code = frame.f_code
                if code is mark or code.co_name in BY_CHANCE or (code is asks and _is_ours(frame.f_back)):
                    silent = frame
                    return
                number = id(code)
                if number not in known:
                    known[number] = (code, frame.f_globals.get("__name__") or "")
                if known[number][1].startswith(DRAWN):
                    silent = frame
                    return
                counts[number] += 1

        return profile

    def by_function(self, packages: tuple[str, ...], is_script: bool = False) -> Counter[str]:
        """The calls by ``package: function @ module``, without those of the standard library and of perfsuite. In a
        script, what is installed beside the ``packages`` has its own name, too.
        """
        calls: Counter[str] = Counter()
        ours = (OURS,) if is_script else (OURS, "__main__")  # the main module is the script, or else the rank server
        for number, count in self.counts.items():
            code, module = self.known[number]
            top = module.partition(".")[0]
            if top in ours or top in sys.stdlib_module_names or module.startswith(("namedtuple_", *WRAPPERS, *FINDERS)):
                continue
            package = top if top in packages or (is_script and _is_installed(module)) else YOURS
            calls[f"{package}: {_qualified(code)}{AT}{module or code.co_filename}"] += count
        return calls


def _is_ours(frame: FrameType | None) -> bool:
    """Whether it runs a function of perfsuite."""
    return frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == OURS


def _qualified(code: CodeType) -> str:
    """The name of a function with that of its class; alone in Python 3.10, whose code objects lack it."""
    return str(getattr(code, "co_qualname", code.co_name))


def _is_installed(module: str) -> bool:
    """Whether the module is a package's, and not the user's own."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and is_installed(file)


def _modules_of(name: str) -> set[str]:
    """The modules of a distribution: that of its name, and those that its metadata say."""
    own = {name.replace("-", "_")}
    try:
        return own | tops(metadata.distribution(name))
    except metadata.PackageNotFoundError:
        return own


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collection."""
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def _in_greenlets(profile: Callable[..., None]) -> Iterator[None]:
    """A greenlet keeps the profile function that it had when it last ran: each is given this one when it goes on."""
    greenlet: Any = sys.modules.get("greenlet")
    if greenlet is None:
        yield
        return
    before = greenlet.settrace(lambda event, both: sys.setprofile(profile))
    try:
        yield
    finally:
        greenlet.settrace(before)


METER = PythonCalls
METRICS = (
    Metric(
        "python_calls",
        "Python calls/step",
        WHOLE,
        hold="exact",
        materiality=OF_A_STEP,
        optional=True,
        depends_on=("python",),
        every_part=True,
    ),
)
