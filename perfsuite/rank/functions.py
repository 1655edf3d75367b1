"""Functions that a definition names as "package.module:function"."""

import contextlib
import functools
import importlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from perfsuite.errors import RankError
from perfsuite.rank.session import Session


@functools.cache
def load_function(reference: str) -> Callable[..., Any]:
    """The function that ``package.module:function`` names. Raises RankError if there is none."""
    module_name, _, function_name = reference.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise RankError(f"{reference!r} is not an importable package.module:function: {error}.") from error
    return function


def function_of(session: Session, name: str) -> Callable[..., Any]:
    """That of a field of the model's definition. Raises RankError if there is none."""
    try:
        return load_function(getattr(session.job.model, name))
    except RankError as error:
        raise RankError(f"{place_of(session, name)} cannot be loaded: {error}") from error


def place_of(session: Session, name: str) -> str:
    """``perf/models/vit.py: the batch of my_vit (vit.data:batch)``, a field of the model's definition."""
    model = session.job.model
    with contextlib.suppress(Exception):  # only for a message
        session.catalog.all("model")
    origin = session.catalog.origins.get(("model", model.name), "conftest.py")
    return f"{origin}: the {name} of {model.name} ({getattr(model, name)})"


@contextlib.contextmanager
def named(session: Session, name: str) -> Iterator[None]:
    """Say which field of the definition the user's own function is, if it raises. Memory that is full is no such
    error.
    """
    import torch

    try:
        yield
    except (RankError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        traceback.print_exc()
        raise RankError(f"{place_of(session, name)} raised {type(error).__name__}: {error}") from error
