"""Every regular expression of the package, with the foreign text that it reads. Our own results travel as data."""

import ast
from pathlib import Path

from expressions import expressions, sources

WHAT_TO_DO = """
Who writes the text that it reads? If people or other programs do, add the expression to EXPRESSIONS with a phrase that
says so. If perfsuite's own code does, carry the data to where it is needed, and no expression is needed: whoever
improves a sentence must break nothing but its own test.
"""

# By file: each expression as its code has it, and whose text it reads.
EXPRESSIONS = {
    "system/paths.py": {
        '[\\\\/:*?"<>|]': "a user's name",
    },
    "catalog/surroundings.py": {
        r"|[+-]?[\d.]+(e[+-]?\d+)?|[A-Za-z_]{1,12}": "a user's variable",
    },
    "records/reasons.py": {
        r"(?<=.)([A-Z])": "names of classes, of which msgspec makes tags",
    },
    "meters/xla.py": {
        r"^\s*(?:ROOT )?%?\S+ = (?P<shape>.+?) (?P<kind>[a-z-]+?)(?P<start>-start)?\(": "XLA's text of a program",
        r"\b(?:pred|[a-z]+(?P<bits>\d+)\w*)\[(?P<sizes>[\d,]*)\]": "XLA's text of a program: a shape",
        r"^(?P<entry>ENTRY )?%?[\w.\-]+ \(.*\{$": "XLA's text of a program",
    },
    "features/predict/trace/ahead.py": {
        r"HLO temporaries \((?P<size>[\d.]+)(?P<unit>[KMGT])\)": "the refusal of XLA's compiler for TPUs",
        r"Used (?P<size>[\d.]+)(?P<unit>[KMGT]) of [\d.]+[KMGT] hbm": "the refusal of XLA's compiler for TPUs",
    },
    "catalog/project.py": {
        r"[*?\[]": "the user's pyproject.toml: a pattern of cells",
        r"[-+*?\[\]]+": "the user's pyproject.toml: a pattern of cells",
        r"\d{4}-\d\d-\d\d": "the user's pyproject.toml: a date",
    },
    "catalog/cell.py": {
        r"(.+?)[_x]*(\d{1,6})": "an option or a marker: hardware with a typing mistake",
        r"([a-z])([1-9]\d{0,8})": "an option or a marker: a workload, as the user writes it",
    },
    "catalog/cell_id.py": {
        "PATTERN": "an option, a file's name, or a report, which may be a stranger's: the id of a cell",
        r"(.+?)(?:_x([0-9]{1,6})(?:n([0-9]{1,6}))?)?": "an option or a marker: hardware, as the user writes it",
    },
    "catalog/expressions.py": {
        r"[()]|[^\s()]+": "an option: -k",
        "at": "names of tests, which the user gives: their parts, one of which -k may have meant",
    },
    "catalog/registry.py": {r"[a-z]\w*": "names of files of the user's: a module"},
    "catalog/strategies.py": {r"(.*?[^\d])(\d{1,6})": "an option or a marker: a technique with its number"},
    "catalog/scripts.py": {
        r"[^a-z0-9_]+": "the name of the user's script",
        r"[a-z][a-z0-9_]*": "a marker or pyproject.toml: the name of a script",
    },
    "cli/commands/init.py": {
        r"\.backward\(|\bTrainer\(|\.train\(\)": "the user's code",
        r"init_process_group|DistributedDataParallel|fully_shard|\bdeepspeed\b": "the user's code",
        r"--(?:nproc[-_]per[-_]node|num[-_]processes|num[-_]gpus|ntasks)[= ](\d+)": "the options of launchers",
    },
    "cli/commands/baseline/survey.py": {r"::\S+\[(\S+)\]$": "pytest's output of --collect-only"},
    "features/emulation/devices.py": {r"(\w+)(?::(\d+))?": "an option: --gpus"},
    "features/emulation/installed.py": {
        r'''rf"^{name}\b[^=\n]*= '([^']*)'"''': "torch's version.py",
        r'FunctionPointer\("(\w+)"\)': "pynvml's source",
        "start": "names of NVIDIA's functions",
        r'rf"NEEDED.*\[({_NVIDIA}\S*)\]"': "readelf's output",
        r"(__)?(cu|nccl|nv)": "nm's output: names of NVIDIA's functions",
        r" [TW] (\w+)$": "nm's output",
    },
    "errors.py": {
        r"[\d\W_]": "a name that a user misspelt, up to its first digit",
        r"\d": "a name that a user misspelt: its digits",
    },
    "environments/git_contents.py": {
        r'rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n"': (
            "pointers of git LFS"
        ),
    },
    "environments/commits.py": {"[0-9a-f]{40}": "a baseline: the name of its commit"},
    "environments/environments.py": {r"@[0-9a-fA-F]{40}$": "an option: a requirement, the address of a commit"},
    "environments/claims.py": {r"[^\w.-]": "a distribution's metadata: a requirement"},
    "environments/uv.py": {
        "_ABSENT.format(re.escape(one.name))": "uv's messages: a release that the index does not have",
        r"^[\w.-]+=(?=\w+://)": "uv's variables: an index with its name",
        r"^(?:global|install)\.index-url='(.*)'$": "pip's output: its configuration",
    },
    "environments/lockfile.py": {r"[\w.-]+==[\w.+!-]+": "an option: a requirement"},
    "features/ladder/asv.py": {
        r"[\w.]*(Error|Exception): ": "asv's output: an exception of a benchmark",
        r"[·\-]|STD(OUT|ERR)|\[? *\d+\.\d\d%": "asv's output: its progress",
        r"^(\[[ \d.]+%\] )?[·\- ]*": "asv's output: its progress",
    },
    "features/ladder/asv_results.py": {
        r"second|/s\b": "asv's benchmarks.json: the unit that the author of a benchmark chose",
        r"[^A-Za-z0-9.]+": "the name of a CPU, as the system gives it",
        "pattern": "asv's benchmarks.json: the name of a benchmark",
    },
    "features/ladder/asv_site.py": {
        r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,\s][^,]*""": "asv's notation of a benchmark's parameters",
        r"'([^']*)'": "asv's notation of a benchmark's parameters",
    },
    "launch/handshake.py": {r'rb"[0-9a-f]{64}"': "bytes of a peer that has not proven that it knows the secret"},
    "launch/node.py": {r"\w[\w.]*": "names of files that a peer sends"},
    "features/nights/dashboard.py": {
        r"[^A-Za-z0-9_+.-]": "cells of a report, which may be a stranger's: the name of a page"
    },
    "features/nights/forge_options.py": {r"[\w.-]+/[\w.-]+": "an option: a repository"},
    "features/nights/news/forge.py": {
        r"\A<!-- perfsuite ([^<>]+) -->(?:\s*<!-- of ([^<>]*) -->)?": (
            "the body of an issue on a server, which anyone there may have written or edited"
        ),
        r"[^\s<>;]+ [^\s<>;]+": "cells and metrics of a report, which may be a stranger's: none may end a comment",
    },
    "features/nights/row.py": {
        r"\d{4}-\d{2}\.jsonl": "names of files that options name: rows of a month, or a report",
        r'f"^{_DATE}$"': "rows of a file that options name: a date",
        "PATTERN": "rows of a file that options name: the id of a cell",
    },
    "features/predict/own_model.py": {r"\W+": "a user's name: of a folder or a file"},
    "features/predict/plan/layout_names.py": {
        "rf\"({'|'.join(NUMBERS)})([1-9]\\d*)\"": "an option: --layout",
        "ckpt(\\d+\\.?\\d*)%": "an option: --layout",
    },
    "features/predict/shallow.py": {r"\d+": "names of torch's operators and of a model's modules"},
    "features/predict/trace/operator_modules.py": {
        r"(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod)\.|^module\.": "names of torch's wrappers",
    },
    "features/predict/trace_summary.py": {r"\.\d+(?=\.|$)": "names of a model's modules: the index of a layer"},
    "rank/compat.py": {r"\w+": "messages of Python's exceptions: the name that a library lacks"},
    "rank/process_group.py": {
        r"(sm|compute)_(\d+)(\d)[a-z]?": "torch's list of the architectures that it is built for"
    },
    "rank/reference_update.py": {r"(DeepSpeedCPU|Fused)?AdamW?(\d+bit)?": "names of optimizers' classes"},
    "records/codec.py": {
        r'rb"(?<!\\)((?:\\\\)*)\\u00((?:[01][0-9a-f])|7f|[89][0-9a-f])"': (
            "a report, which may be a stranger's: control characters"
        ),
        r'rb"[eE]\+?0*(?:[5-9]\d|[1-9]\d\d)"': "a report, which may be a stranger's: exponents of JSON",
        r'rb"[:\[,\s]-?\d+(?:\.\d+)?\Z"': "a report, which may be a stranger's: numbers of JSON",
        r'rb"\x7f|\xc2[\x80-\x9f]"': "a report, which may be a stranger's: control characters",
    },
    "records/packed.py": {r"[0-9a-f]+(\.[0-9a-f]+)?": "a committed baseline, of any branch: digests of files"},
    "environments/requirements.py": {
        r"(^|\s)#.*": "a file of constraints: pip's comments",
        r"-(r|c|-requirement|-constraint)\b": "a file of constraints: pip's options",
    },
    "run/choice.py": {r"\s*(\d+)\s*/\s*(\d+)\s*": "an option: a shard"},
    "run/releases_compared.py": {r"/\S*/(?=[^/\s]+)": "messages of exceptions: folders of this machine"},
    "show/html/causes.py": {r"\d[\d,.]*": "messages of exceptions, and lines of Python: alike but for their numbers"},
    "show/html/cell_report.py": {
        r"[\w.+-][\w./+-]*\.json\.gz": "a report, which may be a stranger's: the path of a trace",
    },
    "show/text/markdown.py": {"`+": "the output of ranks: backticks, which would end a block of code"},
    "show/text/tables.py": {
        r'rf"\b\d{{4}}-\d\d-\d\d(?: \d\d:\d\d(?: UTC)?)?|{_SIDE} (?:->|→) [^\s,;()]{{1,20}}{_UNIT}"': (
            "any text, for a terminal that breaks lines: where it must not. Nothing of it becomes data"
        ),
    },
    "system/units.py": {
        r"\x1b\[[\d;]*m": "foreign text: a terminal's colours",
        r"([0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,2})?)([KMBTkmbt]?)": "an option: a count",
        r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z/]*)\s*": "an option: memory, a network's rate, days, a duration",
    },
}


def test_every_regular_expression_reads_foreign_text():
    """A new one needs a phrase that says whose text it reads."""
    found = [(file, line, text) for file, whole in sources() for line, text in expressions(whole)]
    new = [f"perfsuite/{file}:{line}: {text!r}" for file, line, text in found if text not in EXPRESSIONS.get(file, {})]

    assert new == [], f"These regular expressions are not in {Path(__file__).name}.{WHAT_TO_DO}"


def test_every_listed_regular_expression_is_there():
    """The list is no history."""
    there = {(file, text) for file, whole in sources() for _, text in expressions(whole)}
    gone = [(file, text) for file, texts in EXPRESSIONS.items() for text in texts if (file, text) not in there]

    assert gone == [], f"These are no longer in the package: remove them from EXPRESSIONS in {Path(__file__).name}."


def test_no_regular_expression_hides():
    """Under another name, or from another library, it would not be in the list."""
    hidden = [
        f"perfsuite/{file}:{node.lineno}"
        for file, text in sources()
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.ImportFrom) and node.module in ("re", "regex"))
        or (isinstance(node, ast.Import) and any(one.name in ("re", "regex") and one.asname for one in node.names))
        or (isinstance(node, ast.Import) and any(one.name == "regex" for one in node.names))
    ]

    assert hidden == [], "Write `import re`, and call its functions as `re.fullmatch(…)`."


def test_every_phrase_says_whose_text_it_is():
    """In words, and not that it is ours."""
    phrases = [phrase for texts in EXPRESSIONS.values() for phrase in texts.values()]

    assert [phrase for phrase in phrases if len(phrase.split()) < 2 or "perfsuite's" in phrase] == []
