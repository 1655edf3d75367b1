"""What a trace lacks: values, and some operators on fake tensors. Reported as unsupported, not as an error."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch._subclasses import fake_tensor

from perfsuite.errors import Unsupported
from perfsuite.rank import build_model as build

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")  # in transformers' configurations
OF_ALL = ("grouped_mm", "batched_mm")  # transformers' ways to compute all experts at once
_REASONS = {
    fake_tensor.DynamicOutputShapeException: "makes tensors whose size depends on values, which a trace does not have",
    fake_tensor.DataDependentOutputException: "reads values, which a trace does not have",
    fake_tensor.UnsupportedOperatorException: "does not support fake tensors, which a trace uses",
}
RUN_IT = "measure the cell in a run instead"


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Raise Unsupported, with the operator and the way out, for errors that fake tensors cause. A library may have
    wrapped the error in its own.
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
    """Raise Unsupported for a mixture of experts as soon as it is built, if it computes expert by expert: values decide
    which of them gets which token, and so the sizes of its tensors. One product of all experts has all tokens' size.
    """
    construct = build._construct

    def constructed(*arguments: Any, **options: Any) -> torch.nn.Module:
        model = construct(*arguments, **options)
        config: Any = getattr(model, "config", None)
        count = _experts(config.to_dict()) if hasattr(config, "to_dict") else 0
        if count > 1 and getattr(config, "_experts_implementation", None) not in OF_ALL:
            name = arguments[0].job.model.name
            raise Unsupported(
                f"{name} is a mixture of {count} experts: which of them computes a token depends on "
                f"values, which a trace does not have; {RUN_IT}."
            )
        return model

    with mock.patch.object(build, "_construct", constructed):
        yield


def _experts(config: Mapping[str, Any]) -> int:
    """The most experts in the configuration, or in one inside it; a dense Doge names some too."""
    inside = [_experts(value) for value in config.values() if isinstance(value, Mapping)]
    named = [config.get(name) for name in EXPERTS] if config.get("is_moe", True) else []
    return max([*inside, *(count for count in named if isinstance(count, int))], default=0)
