"""Options that a command does not name: the script's own text says how they are called, and their defaults."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path


def with_defaults(words: Sequence[str], *wanted: Sequence[str]) -> list[str]:
    """The command, and after it one option of each group of names that it does not have, with the script's default: a
    whole number. The command alone if the script has no option of a group.
    """
    options = dict(_options(words))
    added: list[str] = []
    for names in ([plain(name) for name in group] for group in wanted):
        if any(name_of(word) in names for word in words):
            continue
        found = next((name for name in names if name in options), None)
        if found is None:
            return list(words)
        option, default = options[found]
        added += [option, str(default)]
    return [*words, *added]


def name_of(word: str) -> str:
    """Of the option that a word of a command begins with: Hydra's have no dashes, and dots instead. Empty if it begins
    with none.
    """
    return plain(word.partition("=")[0]).rpartition(".")[2] if word.startswith("-") or "=" in word else ""


def plain(option: str) -> str:
    """Its name as Python would have it."""
    return option.lstrip("-").replace("-", "_")


def _options(words: Sequence[str]) -> Iterator[tuple[str, tuple[str, int]]]:
    """Of argparse, click and those like them: a call with a name in dashes, and a default."""
    script = next((Path(word) for word in words if word.endswith(".py") and Path(word).is_file()), None)
    try:
        tree = ast.parse(script.read_bytes()) if script else ast.Module([], [])
    except (OSError, SyntaxError):  # the launch will say so
        return
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        option = next((text for text in texts if text.startswith("--")), "")
        default = next((one.value for one in call.keywords if one.arg == "default"), None)
        if option and isinstance(default, ast.Constant) and type(default.value) is int:
            yield name_of(option), (option, default.value)
