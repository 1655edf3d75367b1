"""A cell's id has one grammar, in one place: what is parsed is formatted again, and no other code takes it apart."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from expressions import PACKAGE, expressions, sources
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.cell_id import CPU, CellId, HardwareName, is_cell_id
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError

HOME = ("catalog/cell_id.py", "catalog/cell.py")
BASELINES = sorted((Path(__file__).parents[2] / "baselines").glob("*/*.json"))
# Other texts with a "-" between their parts.
OTHERS = {
    "records/suspects.py": "indices of layers, 0-3",
    "rank/installed.py": "names of dist-info",
}
name = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
number = st.integers(1, 999_999)
hardware = st.builds(HardwareName, name, number, number)
ids = st.builds(
    CellId,
    name,
    st.lists(name, min_size=1, max_size=4).map("+".join),
    hardware.map(str),
    st.lists(st.from_regex(r"[bst][1-9][0-9]{0,4}", fullmatch=True), max_size=3).map(tuple),
)


@given(ids)
def test_an_id_is_parsed_as_it_was_formatted(one):
    """Every part of it."""
    assert is_cell_id(str(one))
    assert CellId.parse(str(one)) == CellId.split(str(one)) == one


@given(hardware)
def test_hardware_is_parsed_as_it_was_formatted(one):
    """With its nodes, if there are several."""
    assert HardwareName.parse(str(one)) == one


@pytest.mark.parametrize("path", BASELINES, ids=lambda path: path.stem)
def test_the_committed_baselines_have_ids(path):
    """Which name their files, and whose hardware names their folders."""
    one = CellId.parse(path.stem)

    assert one.file_name == path.name
    assert one.hardware == path.parent.name.partition("@")[0]
    assert one.is_on_cpu == path.parent.name.startswith(CPU)


def test_the_parts_of_an_id():
    """Of several nodes, with a changed workload."""
    one = CellId.parse("gpt3_175b-zero3+bf16+acc4-v100_32g_x4n16-b8-s512")

    assert (one.engine, one.techniques) == ("zero3", ["bf16", "acc4"])
    assert (one.ranks, one.is_on_cpu, one.suffixes) == (64, False, ("b8", "s512"))
    assert HardwareName.parse(one.hardware) == HardwareName("v100_32g", 4, 16)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t5_tiny",
        "t5_tiny-zero3-cpu",
        "t5_tiny-zero3-cpu_x0",
        "t5_tiny--cpu_x2",
        "../x-zero3-cpu_x2",
        "t5 tiny-zero3-cpu_x2",
        "t5_tiny-zero3-cpu_x2\n",
        "t5_tiny-zero3-cpu_x2 -> t5_tiny-zero2-cpu_x2",
        "t5_tiny-zero3-cpu_x1234567",
    ],
)
def test_what_is_no_id_is_refused(text):
    """With the form of one: a file's name and a report's cell come from strangers too."""
    assert not is_cell_id(text)
    with pytest.raises(UsageError, match=r"is not a cell's id: write model-strategy-hardware, e\.g\. "):
        CellId.parse(text)


def test_a_cell_of_the_catalog_has_such_an_id():
    """Canonical, whatever the user wrote."""
    cell = parse_cell("t5_tiny-zero3+ckpt+bf16-cpu_x2-s32-b4", Catalog())

    assert CellId.parse(cell.id) == CellId("t5_tiny", "zero3+bf16+ckpt", "cpu_x2", ("b4", "s32"))


def takes_apart(text: str) -> Iterator[int]:
    """The lines that split a text at "-", or look for hardware in one."""
    for call in ast.walk(ast.parse(text)):
        known = [one.value for one in ast.iter_child_nodes(call) if isinstance(one, ast.Constant)]
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            splits = call.func.attr in ("split", "rsplit", "partition", "rpartition") and known[:1] in (["-"], ["_x"])
            starts = call.func.attr in ("startswith", "removeprefix") and known[:1] in (["cpu_"], ["cpu_x"])
            if splits or starts:
                yield call.lineno
        if isinstance(call, ast.Compare) and any(isinstance(one, str) and one.endswith("cpu_x") for one in known):
            yield call.lineno


def puts_together(text: str) -> Iterator[int]:
    """The lines that write model-strategy-hardware, or a number of ranks."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = [str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values]
            if re.match(r"\{\}-\{\}(\+\{\})?-\{\}", "".join(parts)) or "_x{}" in "".join(parts):
                yield node.lineno


@pytest.mark.parametrize("finds", [takes_apart, puts_together])
def test_no_other_code_knows_the_grammar(finds):
    """CellId and HardwareName do: a change of the grammar is one there."""
    files = {file: text for file, text in sources() if file not in (*HOME, *OTHERS)}
    found = [f"perfsuite/{file}:{line}" for file, text in files.items() for line in finds(text)]

    assert found == [], "Use CellId or HardwareName of perfsuite/catalog/cell_id.py."


def test_no_other_regular_expression_is_of_an_id():
    """One that matches ids whole, and not every word."""
    cells = ("t5_tiny-zero3+bf16-cpu_x2", "gpt2_tiny-ddp-v100_32g_x4n16-b8")
    found = [
        f"perfsuite/{file}:{line}: {text}"
        for file, whole in sources()
        if file not in HOME
        for line, text in expressions(whole)
        if all(_matches(text, cell) for cell in cells) and not any(_matches(text, word) for word in ("word", "word8"))
    ]

    assert found == [], "Use CellId or is_cell_id of perfsuite/catalog/cell_id.py."


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.fullmatch(pattern, text) is not None
    except re.error:  # code, not a pattern
        return False


def test_the_files_with_other_texts_have_them():
    """The list is no history."""
    texts = {file: (PACKAGE / file).read_text() for file in OTHERS}

    assert [file for file, text in texts.items() if not [*takes_apart(text), *puts_together(text)]] == []
