"""Folders and files outside of the repository: the cache, and the files that options name."""

import tempfile
from pathlib import Path

from perfsuite.errors import UsageError


def cache_folder() -> Path:
    """Where perfsuite keeps what it compiled; ``XDG_CACHE_HOME`` moves it."""
    from platformdirs import user_cache_path

    return user_cache_path("perfsuite", appauthor=False)


def check_output(option: str, path: Path | None, suffix: str = "") -> None:
    """Raise UsageError early, not after hours of work, if no file with that suffix can be written there."""
    if not path:
        return
    folder, special = path.absolute().parent, path.exists() and not path.is_file()
    if path.suffix != (suffix or path.suffix) or special or not folder.is_dir():
        raise UsageError(f"{option} names {path}: it must be a file{suffix and ' *' + suffix} in an existing folder.")
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{path.name}.", suffix=".part"):  # as it will be written
            pass
    except OSError as error:
        raise UsageError(f"{option} names {path}, but no file can be created there: {error.strerror}.") from error
