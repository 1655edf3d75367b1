"""Every private name of a library that the code uses is listed in rank/compat.py, and installed releases have it."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import perfsuite
from perfsuite.rank.compat import ATTRIBUTES, NAMES, OPERATORS

ROOT = Path(perfsuite.__file__).parent
LIBRARIES = {"accelerate", "bitsandbytes", "deepspeed", "peft", "torch", "torchao", "transformers"}
TORCH = metadata.version("torch")
PYTHON = {
    "_SubParsersAction",
    "_actions",
    "_asdict",
    "_current_frames",
    "_exit",
    "_getframe",
    "_StringGlobber",
    "_value2member_map_",
}
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path.name != "compat.py"]
LISTED = {part for name in (*NAMES, *OPERATORS) for part in name.split(".") if part.startswith("_")} | ATTRIBUTES.keys()
LOOK = """
import contextlib, json, sys
with contextlib.suppress(ImportError):
    import torch.nn.modules.linear_cross_entropy  # it registers its operators
from perfsuite.rank.compat import is_there
print(json.dumps([name for name in json.load(sys.stdin) if not is_there(name)]))
"""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _own(trees: Iterable[ast.Module]) -> set[str]:
    """The names that perfsuite itself gives to anything."""
    found = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def _paths(tree: ast.Module) -> Iterator[str]:
    """The dotted paths in libraries that a file uses, as far as imports tell."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in LIBRARIES:
                    yield alias.name
                    known[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LIBRARIES:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (root := ast.unparse(node).partition("."))[0] in known:
            yield f"{known[root[0]]}.{root[2]}"


def _is_listed(path: str) -> bool:
    if path.startswith("torch.ops."):
        return any(f"{path}.".startswith(f"torch.ops.{name}.") for name in OPERATORS) or path in (
            f"torch.ops.{name.partition('.')[0]}" for name in OPERATORS
        )
    return any(f"{path}.".startswith(f"{name}.") or name.startswith(f"{path}.") for name in NAMES)


def test_private_names_are_listed() -> None:
    """What is imported or called by its path, and what is asked of an object."""
    trees = {path: ast.parse(path.read_bytes()) for path in FILES}
    known = LISTED | _own(trees.values()) | PYTHON
    unlisted = {str(path): [*_unlisted(tree), *({*_asked(tree)} - known)] for path, tree in trees.items()}

    assert {path: names for path, names in unlisted.items() if names} == {}


def _unlisted(tree: ast.Module) -> list[str]:
    return [name for name in _paths(tree) if any(map(is_private, name.split("."))) and not _is_listed(name)]


def _asked(tree: ast.Module) -> list[str]:
    asked = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_private(node.attr)]
    patched = [
        str(node.args[1].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("getattr", "hasattr", "setattr", "mock.patch.object")
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
        and is_private(str(node.args[1].value))
    ]
    return [*asked, *patched]


def test_nothing_is_listed_that_no_code_uses() -> None:
    """So that the lists tell what a new release may break."""
    text = "\n".join(path.read_text() for path in FILES)

    assert [name for name in sorted(LISTED) if name not in text] == []


def test_the_installed_releases_have_every_name() -> None:
    """In a process of its own: this one never imports torch. Attributes of objects need the objects, and the cells that
    make them.
    """
    asked = json.dumps([*NAMES, *(f"torch.ops.{name}" for name in OPERATORS)])
    done = subprocess.run([sys.executable, "-c", LOOK], input=asked, capture_output=True, text=True, check=True)

    assert json.loads(done.stdout.splitlines()[-1]) == []


VOTE = "stage.PipelineStage._warmup_forward_vote"
BATCH = (
    f"torch {TORCH} has no torch.distributed.pipelining.schedules._batch_p2p (sends keep their tensors until they are "
    "done, in a trace): torch>=2.6,<=2.15 has it."
)
LACKING = {  # code that fails, and what its error becomes; None: it stays what it is
    "schedules._batch_p2p": BATCH,
    "from torch.distributed.pipelining.schedules import _batch_p2p": BATCH,
    "mock.patch.object(stage.PipelineStage, '_warmup_forward_vote', None).start()": f"torch {TORCH} has no "
    f"torch.distributed.pipelining.{VOTE} (stages vote on shapes, in a trace): torch>=2.12,<2.15 has it.",
    "torch.ops.aten._no_such_operator": "None",
    "torch.Tensor._handle": "None",  # this release has it, elsewhere
    "import torch.no_such_module": "None",
    "raise ValueError('_batch_p2p')": "None",
    "Model()._no_split_modules": "None",  # nor has every object what its release has
    "Model()._resolve_parallel_plans": "transformers 5.22.2 has no _resolve_parallel_plans (transformers' models: the "
    "tensor-parallel plan, its wildcards replaced): transformers>=5.23,<=5.23 has it.",
}
LACKS = """
import json, sys
from unittest import mock
import torch
from torch.distributed.pipelining import schedules, stage
from perfsuite.rank import compat

Model = type("Model", (), {"__module__": "transformers.models.t5"})
version = compat.metadata.version
compat.metadata.version = lambda name: "5.22.2" if name == "transformers" else version(name)
del schedules._batch_p2p, stage.PipelineStage._warmup_forward_vote
for code in json.load(sys.stdin):
    try:
        exec(code)
    except Exception as error:
        print(compat.lacking(error))
"""


def test_what_a_release_lacks_is_unsupported() -> None:
    """With what it is for and the releases that have it; every other error stays what it is."""
    asked = json.dumps(list(LACKING))
    done = subprocess.run([sys.executable, "-c", LACKS], input=asked, capture_output=True, text=True, check=True)

    assert dict(zip(LACKING, done.stdout.splitlines(), strict=True)) == LACKING
