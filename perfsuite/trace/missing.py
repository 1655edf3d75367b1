"""What a trace lacks, and a run has: values, and some operators on fake tensors. Told as that, not as an error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch._subclasses import fake_tensor

from perfsuite.errors import Unsupported
from perfsuite.rank import build

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")  # in transformers' configurations
_REASONS = {
    fake_tensor.DynamicOutputShapeException: "makes tensors whose size depends on values, which a trace has not",
    fake_tensor.DataDependentOutputException: "reads values, which a trace has not",
    fake_tensor.UnsupportedOperatorException: "cannot be run on fake tensors, of which a trace is made",
}
RUN_IT = "measure the cell in a run instead"


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Raise Unsupported, with the operator and the way out, for what fails because tensors are fake. A library may have
    put an error of its own around it.
    """
    try:
        yield
    except Exception as error:
        inner: BaseException | None = error
        while inner is not None:
            for kind, reason in _REASONS.items():
                if isinstance(inner, kind):
                    operator: Any = vars(inner)["func"]
                    raise Unsupported(f"{operator} {reason}: {RUN_IT}.") from error
            inner = inner.__cause__ or inner.__context__
        raise


@contextlib.contextmanager
def experts_refused() -> Iterator[None]:
    """Raise Unsupported for a mixture of experts as soon as it is built: which expert gets which token is decided by
    values, and with it the sizes of what the experts compute.
    """
    construct = build._construct

    def constructed(*arguments: Any, **options: Any) -> torch.nn.Module:
        model = construct(*arguments, **options)
        config: Any = getattr(model, "config", None)
        count = _experts(config.to_dict()) if hasattr(config, "to_dict") else 0
        if count > 1:
            raise Unsupported(
                f"{arguments[0].name} is a mixture of {count} experts: which of them computes a token depends on "
                f"values, which a trace has not; {RUN_IT}."
            )
        return model

    with mock.patch.object(build, "_construct", constructed):
        yield


def _experts(config: Mapping[str, Any]) -> int:
    """The most experts that the configuration, or one inside it, has; a Doge that is dense names some all the same."""
    inside = [_experts(value) for value in config.values() if isinstance(value, Mapping)]
    named = [config.get(name) for name in EXPERTS] if config.get("is_moe", True) else []
    return max([*inside, *(count for count in named if isinstance(count, int))], default=0)
