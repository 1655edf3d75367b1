"""How many ranks a command starts, and the same command with another number."""

from collections.abc import Sequence
from pathlib import Path

from perfsuite.catalog.scripts import assignments

COUNTS = {  # the word that starts ranks → its options for their number
    "torchrun": ("--nproc-per-node", "--nproc_per_node"),
    "torch.distributed.run": ("--nproc-per-node", "--nproc_per_node"),
    "torch.distributed.launch": ("--nproc-per-node", "--nproc_per_node"),
    "accelerate": ("--num_processes", "--num-processes"),
    "accelerate.commands.launch": ("--num_processes", "--num-processes"),
    "deepspeed": ("--num_gpus", "--num-gpus"),
}


def launcher(words: Sequence[str]) -> tuple[int, tuple[str, ...]] | None:
    """Where a command's launcher is, and its options for the number of ranks; None if it has none that is known."""
    first = len(assignments(words)[0])
    for at, word in enumerate(words[first:], first):
        if (name := Path(word).name) in COUNTS and (at == first or words[at - 1] == "-m"):
            return at, COUNTS[name]
        if word.endswith(".py"):
            return None
    return None


def with_ranks(words: Sequence[str], ranks: int) -> list[str]:
    """The command on so many ranks; as it is if its launcher is not known."""
    found = launcher(words)
    if found is None:
        return list(words)
    at, options = found
    changed = list(words)
    for number, word in enumerate(words[at + 1 :], at + 1):
        option, equals, _ = word.partition("=")
        if option in options and equals:
            changed[number] = f"{option}={ranks}"
            return changed
        if option in options:
            changed[number + 1] = str(ranks)
            return changed
        if word.endswith(".py"):
            break
    after = at + 2 if Path(words[at]).name == "accelerate" else at + 1  # accelerate launch
    return [*words[:after], f"{options[0]}={ranks}", *words[after:]]
