"""Torch's functions of dropout, and who is told when one drops values."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from perfsuite.rank.script.watched import replace

DROPOUT = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


def watch_dropouts(torch: ModuleType, tell: Callable[[str], None]) -> None:
    """Tell the name of each that is about to drop some."""

    def make(drop: Callable[..., Any]) -> Callable[..., Any]:
        def dropping(input: Any, p: float = 0.5, training: bool = True, *args: Any, **kwargs: Any) -> Any:
            if training and p:
                tell(drop.__name__)
            return drop(input, p, training, *args, **kwargs)

        return dropping

    for name in DROPOUT:
        replace(torch.nn.functional, name, make)
