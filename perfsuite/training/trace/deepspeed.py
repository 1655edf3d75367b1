"""What DeepSpeed does that a rank without siblings, or without data, cannot."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

WHERE = (
    "deepspeed.runtime.zero.stage3",
    "deepspeed.runtime.zero.partition_parameters",
    "deepspeed.runtime.zero.partitioned_param_coordinator",
)


@contextlib.contextmanager
def ranks_agree(recorder: Any) -> Iterator[None]:
    """Stage 3 asserts that all ranks gather the same parameters: there is nobody to ask."""
    with contextlib.ExitStack() as stack:
        for name in WHERE:
            module = importlib.import_module(name)
            stack.enter_context(mock.patch.object(module, "assert_ints_same_as_other_ranks", lambda ints: None))
        yield


PATCHES = (ranks_agree,)
