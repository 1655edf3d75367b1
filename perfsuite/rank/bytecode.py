"""The modules that Python compiles when it imports them, because it finds no valid bytecode of theirs.

Imports nothing but the standard library: what is watched here are imports.
"""

import contextlib
import importlib.util
import os
import sys
import time
from importlib.machinery import SourceFileLoader
from typing import Any

CLOCKS_DIFFER = 2.0  # seconds between a file system's clock and this machine's, at most


class Compiled:
    """Those of this process, from now on."""

    def __init__(self) -> None:
        self._begun = time.time()
        files: dict[str, str] = {}
        self._files = files
        plain: Any = SourceFileLoader.source_to_code

        def source_to_code(loader: Any, data: Any, path: Any, **options: Any) -> Any:
            files[loader.name] = os.fsdecode(path)
            return plain(loader, data, path, **options)

        SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign,assignment]

    def uncached(self) -> list[str] | None:
        """Those whose bytecode was not kept, so that every start of Python compiles them; None if Python is not to keep
        any.
        """
        if sys.dont_write_bytecode:
            return None
        return sorted(name for name, file in self._files.items() if not self._is_kept(file))

    def _is_kept(self, file: str) -> bool:
        with contextlib.suppress(OSError, NotImplementedError):  # there is none; this Python has no caches
            return os.stat(importlib.util.cache_from_source(file)).st_mtime > self._begun - CLOCKS_DIFFER
        return False
