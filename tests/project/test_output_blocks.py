"""The blocks of output in the README and in docs/: each has its command, which prints it."""

import re
from pathlib import Path

import pytest
from docs_output import OUTPUT, ROOT, Block, Unmade, made_anew, missing, parts_of, prints, renewed

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
OLDER = {"README.md", "upgrade.md"}  # their commands install older releases
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks_of(page: str) -> list[Block]:
    return [part for part in parts_of(page) if isinstance(part, Block)]


@every_page
def test_each_block_of_output_has_its_command(page):
    """Or a program of this repository; a list of cells needs none, and each of them is one."""
    text, catalog = page.read_text(), Catalog()
    blocks = blocks_of(text)
    lists = [block for language, block in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL) if language in OUTPUT]
    for block in lists:
        if block not in [one.text for one in blocks]:
            for line in block.splitlines():
                parse_cell(line.split()[0], catalog)

    assert [one.by for one in blocks if one.by and not (ROOT / one.by).is_file()] == []
    assert [one.text for one in blocks if not (one.by or one.commands.strip())] == []


def with_output(page: Path) -> bool:
    return any(not one.by for one in blocks_of(page.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.network] if page.name in OLDER else [])
        for page in PAGES
        if with_output(page)
    ],
)
def test_a_page_shows_what_its_commands_print(page, tmp_path):
    """Run in order, as they stand there."""
    wrong = [line for block, printed in prints(page.read_text(), tmp_path) for line in missing(block.text, printed)]

    assert wrong == []


def test_a_line_that_was_not_printed_is_found():
    """Another size is another line, another time is not."""
    printed = "a-ddp-cpu_x2  new   13.49 MiB   87.9 ms  5,827\nloss  7.08 -> 7.09\n"

    assert missing("a-ddp-cpu_x2  new  13.49 MiB  90 ms  6,000\n…\nloss  7.08 …\n", printed) == []
    assert missing("a-ddp-cpu_x2  new  13.50 MiB  87.9 ms  5,827\n", printed) == ["a-ddp-cpu_x2 new 13.50 MiB # ms #"]
    assert missing("a-ddp-cpu_x2  new  13.49 MiB  87.9 ms  5,827  7.1 %\n", printed)
    assert missing("loss  7.08\n", printed) == ["loss 7.08"]


def test_a_block_without_a_command_is_refused():
    """Also one whose comment stands before something else; not a list of cells."""
    block = "```text\nloss 7.0\n```\n"
    for page in (block, f"<!-- output:\ntrue\n-->\nA sentence.\n\n{block}", f"```bash\ntrue\n```\n\n{block}"):
        with pytest.raises(Unmade, match="no command prints this block: loss"):
            blocks_of(page)

    assert blocks_of("```text\ngpt2_tiny-ddp-cpu_x2-b8  two ranks\n```\n") == []


PAGE = """
```python
# digits.py
print("loss", 7.25, "of the first step")
```

<!-- run: sed -i s/7.25/7.5/ digits.py -->
```bash
cat digits.py; python digits.py
```

<!-- output of 2026-01-01, 0123abcd -->
```text
…
loss 6.0 of …
```

<!-- output:
python -c 'print(1)'
-->
```text
22
```
"""


def test_a_page_is_made_anew(tmp_path):
    """Its files are written, its commands run in order, and what differs is its numbers."""
    new = made_anew(PAGE, tmp_path, "2026-11-28, 89abcdef")

    assert "<!-- output of 2026-11-28, 89abcdef -->\n```text\n…\nloss 7.5 of …\n```" in new
    assert "<!-- output of 2026-11-28, 89abcdef:\npython -c 'print(1)'\n-->\n```text\n1\n```" in new
    assert missing(blocks_of(new)[0].text, "loss 7.5 of the first step\n") == []


def test_a_table_is_as_narrow_as_the_chosen_lines_allow():
    """The lines that are left out may be wider. Which rank failed first, and a commit, are no difference."""
    printed = (
        "  loss" + " " * 20 + "7.0     ok\n  peak memory and more     1 MiB   worse\n  norm" + " " * 21 + "12.0   ok"
    )

    assert renewed("  loss 6.0 ok\n  norm 3.0 ok\n", printed) == "  loss  7.0    ok\n  norm   12.0  ok\n"
    assert renewed("4 of 9 regressed …\n", "3 of 9 regressed, 1 open\n") == "3 of 9 regressed …\n"
    assert missing("Rank 1 failed at 0123abcd9\n", "Rank 0 failed at 89ab01234\n") == []


def test_a_line_of_other_words_is_not_made_anew():
    """Somebody has to look at it."""
    with pytest.raises(Unmade, match="not printed any more: loss 6"):
        renewed("loss 6.0\n", "norm 6.0\n")
