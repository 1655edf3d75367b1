"""What a cell needs of a library and an installed release lacks: the sentence in which it is refused."""

import contextlib
import pkgutil
import traceback
from collections.abc import Iterator
from importlib import metadata

from packaging.version import Version

from perfsuite.errors import Unsupported


def lacks(who: str, library: str, what: str, since: str = "") -> Unsupported:
    """The refusal: ``who`` is engine and technique, ``since`` the first release that has it, where that is known."""
    way_out = f": {since} is the first that does" if since else ""
    return Unsupported(f"{who} cannot run on {library} {metadata.version(library)}, which has no {what}{way_out}.")


def need(path: str, who: str, since: str = "") -> None:
    """Raise Unsupported unless the library has the attribute or the module that ``path`` names."""
    try:
        pkgutil.resolve_name(path)
    except (AttributeError, ImportError) as error:
        raise lacks(who, path.partition(".")[0], path, since) from error


def need_release(library: str, since: str, who: str, what: str) -> None:
    """Raise Unsupported where the library is older; for what has no public name by which it could be asked for."""
    if Version(metadata.version(library)) < Version(since):
        raise lacks(who, library, what, since)


@contextlib.contextmanager
def refused(who: str, library: str) -> Iterator[None]:
    """Around calls of a library that may not go with the releases of others here: Unsupported, with its own words.

    It says so by an ImportError, which transformers wraps into RuntimeErrors, or it asks an object of another library
    for an attribute or an argument that is not there.
    """
    try:
        yield
    except (ImportError, AttributeError, TypeError, RuntimeError) as error:
        first = _first(error) if isinstance(error, RuntimeError) else error
        absent = isinstance(first, AttributeError) or "unexpected keyword argument" in str(first)
        missing = absent and _raised_in(library, first)
        if not missing and not isinstance(first, ImportError):
            raise
        reason = " ".join(str(first).split())
        raise Unsupported(f"{who} cannot run on {library} {metadata.version(library)}: {reason}") from error


def _first(error: BaseException) -> BaseException:
    """The error of which this one is the consequence."""
    while error.__cause__:
        error = error.__cause__
    return error


def _raised_in(library: str, error: BaseException) -> bool:
    """Whether the library's own code ran last, but for torch's Module.__getattr__, which raises for its caller."""
    ran = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    last = next((name for name in reversed(ran) if name != "torch.nn.modules.module"), "")
    return bool(last.partition(".")[0] == library)
