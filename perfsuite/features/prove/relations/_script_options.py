"""Options of a script for its batch and its accumulation, in the command or by their defaults in the script's text."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfsuite.errors import UsageError

BATCH = (
    "per_device_train_batch_size",
    "train_micro_batch_size_per_gpu",
    "micro_batch_size",
    "per_device_batch_size",
    "device_batch_size",
    "micro_batch",
    "batch_size",
    "batch",
)
ACCUMULATION = (
    "gradient_accumulation_steps",
    "gradient_accumulation",
    "accumulate_grad_batches",
    "accumulation_steps",
    "grad_accumulation_steps",
    "grad_accum_steps",
    "grad_acc_steps",
    "accum_steps",
    "grad_accum",
    "accumulate",
    "accumulation",
    "accum",
)


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


def number_of(words: Sequence[str], names: Sequence[str]) -> int:
    """The number that the first of these options has. Raises UsageError if it has none."""
    at, prefix = place_of(words, names)
    text = words[at].removeprefix(prefix) if at < len(words) else ""
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise UsageError(f"{names[0]} needs a number of 1 or more, not {text!r}.")
    return int(text)


def place_of(words: Sequence[str], names: Sequence[str]) -> tuple[int, str]:
    """Where the value of the first of these options is: the number of its word, and what is before it there.

    Raises UsageError if the command has none of them.
    """
    for name in names:
        for number, word in enumerate(words):
            option, equals, _ = word.partition("=")
            if name in (option, name_of(word)):
                return (number, f"{option}=") if equals else (number + 1, "")
    raise UsageError(
        f"The command does not say {names[0]}. Write the micro-batch and the accumulation into it, such as "
        "--per_device_train_batch_size 4 --gradient_accumulation_steps 2. Name other options: "
        "--names=batch=--rows,accumulate=--parts."
    )
