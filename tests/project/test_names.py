"""Names stand by themselves, and parameters do not only travel."""

import ast
from collections import defaultdict

from test_layers import FILES, ROOT

MANY, MOST_WITH_MANY, MOST = 6, 20, 8  # parameters
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_bytes()) for path in FILES}


def test_a_class_name_stands_once() -> None:
    """So it can be searched for. What is private to a file may be called as it is there."""
    places = defaultdict(list)
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(file)

    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def parameters(function: ast.FunctionDef) -> list[str]:
    """Those that a caller may name."""
    found = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return found[1:] if found[:1] in (["self"], ["cls"]) else found


def test_few_functions_have_many_parameters() -> None:
    """What always travels together is an object."""
    many = {
        f"{file}: {node.name}": len(names)
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and len(names := parameters(node)) >= MANY
    }

    assert {name: count for name, count in many.items() if count > MOST} == {}
    assert len(many) <= MOST_WITH_MANY, "\n".join(many)


def test_a_field_of_a_rank_has_a_type() -> None:
    """No field of a class in rank/ is of any type: a stranger must know what it is."""
    untyped = [
        f"{file}: {node.name}.{ast.unparse(field.target)}"
        for file, tree in TREES.items()
        if file.startswith("rank/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and "Any" in ast.unparse(field.annotation)
    ]

    assert untyped == []
