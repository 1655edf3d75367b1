"""What a cold start is: what its process imports, and the variables with which it begins."""

import importlib.util
import os
from pathlib import Path
from typing import Any

from perfsuite.rank.build_model import from_transformers
from perfsuite.rank.functions import function_of

COMPILER_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


class ColdStart:
    """Of one rank. A script of the cell's strategy would import the same, in the same order."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def path(self) -> list[str]:
        """Folders of modules, behind those that Python knows."""
        return list(self.session.job.import_path)

    def imports(self) -> list[str]:
        """Modules, and what is imported from one: ``transformers:GPT2LMHeadModel``."""
        strategy, model = self.session.strategy, self.session.job.model
        parts = (strategy.engine, *(choice.technique for choice in strategy.choices))
        named = [name for part in parts for name in (*part.packages, *part.preload)]
        names = ["torch", *(name for name in named if _is_module(name))]
        if function_of(self.session, "build") is from_transformers:
            names.append(f"transformers:{model.model_class}")
        else:
            names.append(model.build.partition(":")[0])
        return list(dict.fromkeys(names))

    def variables(self, folder: Path, start: str) -> dict[str, str]:
        """Those that differ from the rank's. The ``first`` start of a cell leaves what it compiled to the others."""
        caches = {name: str(folder / name) for name in COMPILER_CACHES}
        return {**caches, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}  # sets keep their order


def _is_module(name: str) -> bool:
    """Distributions are named as their modules, with few exceptions."""
    return importlib.util.find_spec(name) is not None
