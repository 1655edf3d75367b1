"""The registry: a folder of one's own adds to every kind, and a broken file is one clear sentence."""

import dataclasses
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gate_samples as samples
import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import KINDS, Catalog
from perfsuite.compare.rules import RULES, compare_metric, rule_of
from perfsuite.compare.scope import Scope
from perfsuite.errors import FEW_NAMES, FileError, UnknownName, UsageError
from perfsuite.records.sample import Reading

RULE_NAMES = ", ".join(RULES)
MINE = {
    "models/mine.py": """
from perfsuite.catalog.definitions import Model, Workload
MODELS = (
    Model(name="my_model", family="mine", task="causal_lm", source="ours", parameters=1,
          workload=Workload(micro_batch=1, sequence_length=8)),
)
""",
    "hardware/mine.py": """
from perfsuite.catalog.definitions import Device
DEVICES = (
    Device(name="my_gpu", matches=("my gpu",), memory_bytes=2**30, memory_bandwidth=1e9, dense_flops={"fp32": 1e12},
           link_bandwidth=0, host_bandwidth=1e9, source="ours"),
)
""",
    "engines/mine.py": """
from perfsuite.catalog.definitions import Engine
ENGINES = (Engine(name="my_engine", trainer=object, source="ours", refuses={"fp16": "it has no loss scaling"}),)
""",
    "techniques/mine.py": """
from perfsuite.catalog.definitions import Technique
TECHNIQUES = (Technique(name="my_lora", slot="adapter", order=60, meaning="Ours.", parameter="rank"),)
""",
    "meters/mine.py": """
from perfsuite.catalog.definitions import Metric
METER = object
METRICS = (Metric(name="my_watts", title="my watts", unit="W"),)
""",
    "studies/mine.py": """
from perfsuite.catalog.definitions import Study, Variant
STUDIES = (
    Study(name="my-study", question="Which?", asked="us", model="t5_tiny", hardware="cpu_x1",
          rows=(Variant(name="one", engine="single"),), answer=lambda results: []),
)
""",
}
HERE = [kind for kind in KINDS if importlib.util.find_spec(KINDS[kind].package)]  # studies are of a feature


def write(folder: Path, files: dict[str, str]) -> Catalog:
    """A catalog with these files in a folder of the user's."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Catalog((folder,))


@pytest.mark.parametrize("kind", HERE)
def test_every_definition_is_of_its_kind(kind: str) -> None:
    """perfsuite's own files define at least one of every kind, under the names that they carry."""
    definitions = Catalog().all(kind)

    assert definitions
    assert all(item.name == name and isinstance(item, KINDS[kind].type) for name, item in definitions.items())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("model", "my_model"),
        ("device", "my_gpu"),
        ("engine", "my_engine"),
        ("technique", "my_lora"),
        ("metric", "my_watts"),
        ("study", "my-study"),
    ],
)
def test_a_folder_adds(tmp_path: Path, kind: str, name: str) -> None:
    """A file in the user's folder adds its definitions after perfsuite's own."""
    catalog = write(tmp_path, MINE)

    assert list(catalog.all(kind)) == [*Catalog().all(kind), name]
    assert catalog.get(kind, name).name == name


def test_a_cell_of_ones_own(tmp_path: Path) -> None:
    """What a folder adds composes like perfsuite's own, refusals included."""
    catalog = write(tmp_path, MINE)

    assert parse_cell("my_model-my_engine+my_lora8+bf16-my_gpu_x4", catalog).id == (
        "my_model-my_engine+bf16+my_lora8-my_gpu_x4"
    )
    with pytest.raises(Exception, match="my_engine cannot be combined with 'fp16': it has no loss scaling"):
        parse_cell("my_model-my_engine+fp16-my_gpu_x4", catalog)


def test_helpers_are_passed_over(tmp_path: Path) -> None:
    """A file whose name begins with an underscore is not read."""
    catalog = write(tmp_path, MINE | {"models/_helper.py": "raise RuntimeError"})

    assert "my_model" in catalog.all("model")


def test_two_folders_with_equal_names(tmp_path: Path) -> None:
    """Files of one name in folders of one name are different files."""
    other = MINE["models/mine.py"].replace("my_model", "your_model")
    write(tmp_path / "a" / "catalog", {"models/mine.py": MINE["models/mine.py"]})
    write(tmp_path / "b" / "catalog", {"models/mine.py": other})
    models = Catalog((tmp_path / "a" / "catalog", tmp_path / "b" / "catalog")).all("model")

    assert list(models)[-2:] == ["my_model", "your_model"]


def test_a_model_from_a_conftest(tmp_path: Path) -> None:
    """A model that a conftest declares is one among the others; a name that is taken is refused."""
    model: Model = write(tmp_path, MINE).get("model", "my_model")

    assert Catalog(extra_models=(model,)).get("model", "my_model") is model
    with pytest.raises(FileError, match="the conftest defines the model 't5_tiny' again; give it another name"):
        Catalog(extra_models=(dataclasses.replace(model, name="t5_tiny"),)).all("model")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            MINE["models/mine.py"].replace("my_model", "t5_base"),
            "defines the model 't5_base' again; give it another name.",
        ),
        ("MODELS = (", "cannot be loaded: SyntaxError: "),
        ("import a_module_that_is_not_here", "cannot be loaded: ModuleNotFoundError: No module named "),
        ("1 / 0", "cannot be loaded: ZeroDivisionError: division by zero."),
        ("MODEL = ()", "must define MODELS, a tuple of Model."),
        ("MODELS = []", "must define MODELS, a tuple of Model."),
        ("MODELS = ('t5',)", "must define MODELS, a tuple of Model."),
    ],
    ids=["duplicate", "syntax", "import", "raises", "no tuple", "list", "other type"],
)
def test_a_broken_file(tmp_path: Path, text: str, sentence: str) -> None:
    """A file that cannot be used is one sentence that names it and what is wrong, each time that it is asked for."""
    catalog = write(tmp_path, {"models/broken.py": text})
    for _ in range(2):
        with pytest.raises(FileError) as caught:
            catalog.all("model")

        assert str(caught.value).startswith(str(tmp_path / "models" / "broken.py"))
        assert sentence in str(caught.value)


METER = "class Watts:\n    pass\n\nMETER = Watts\n"
METRIC = """
from perfsuite.catalog.definitions import Metric
METRICS = (Metric(name="my_watts", title="watts", unit="W", hold="{}"),)
"""
RULE = """
from perfsuite.compare.rules import Rule
RULE = Rule(hold=lambda metric, new, old, scope: "held by mine")
"""


def test_a_rule_of_ones_own(tmp_path: Path) -> None:
    """A metric's ``hold`` may name a file of the folder's ``rules``."""
    catalog = write(tmp_path, {"meters/mine.py": METER + METRIC.format("mine"), "rules/mine.py": RULE})
    hold: Any = rule_of(catalog.get("metric", "my_watts")).hold

    assert hold(None, None, None, None) == "held by mine"


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"meters/mine.py": METRIC.format("exact")}, "must define METER, a class that measures METRICS."),
        (
            {"meters/mine.py": METER + METRIC.format("exakt")},
            f"No rule named 'exakt'. Did you mean 'exact'? Known: {RULE_NAMES}.",
        ),
        (
            {"meters/mine.py": METER + METRIC.format("undefined")},
            f"No rule named 'undefined'. Known: {RULE_NAMES}. ",
        ),
        ({"meters/mine.py": METER + METRIC.format("mine"), "rules/mine.py": ""}, "must define RULE, a Rule of "),
        ({"meters/mine.py": METER + METRIC.format("time"), "rules/time.py": RULE}, "defines the rule 'time' again"),
    ],
    ids=["no meter", "unknown rule", "undefined", "no rule", "taken"],
)
def test_a_metric_that_cannot_be_held(tmp_path: Path, files: dict[str, str], sentence: str) -> None:
    """It is refused when the catalog is read, before anything trains; the file is named."""
    catalog = write(tmp_path, files)
    with pytest.raises(FileError) as caught:
        catalog.all("metric")

    assert str(tmp_path) in str(caught.value)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("order", "default", "sentence"),
    [
        (50, True, "'quiet' is a second default of the slot 'dropout', as 'dropout': leave out one"),
        (
            51,
            False,
            "the order of 'quiet' is 51, but 'dropout' of the same slot, 'dropout', has 50: give both the same.",
        ),
    ],
)
def test_a_slot_has_one_default_and_one_place(tmp_path: Path, order: int, default: bool, sentence: str) -> None:
    """Else a cell's name would not say what is trained."""
    technique = f'Technique("quiet", "Ours.", slot="dropout", order={order}, default={default})'
    text = f"from perfsuite.catalog.definitions import Technique\nTECHNIQUES = ({technique},)\n"
    catalog = write(tmp_path, {"techniques/quiet.py": text})

    with pytest.raises(FileError, match=sentence):
        catalog.all("technique")


@pytest.mark.parametrize("kind", HERE)
def test_an_unknown_name_teaches(kind: str) -> None:
    """It gives the nearest, and the known ones if they are few. If none is near, it gives the file to add."""
    known = Catalog().all(kind)
    near = next(iter(known))
    with pytest.raises(UnknownName) as caught:
        Catalog().get(kind, f"{near}_")
    ours, yours = KINDS[kind].package.replace(".", "/"), KINDS[kind].folder

    assert str(caught.value).startswith(f"No {kind} named '{near}_'. Did you mean {near!r}?")
    assert all(name in str(caught.value) for name in known) == (len(known) <= FEW_NAMES)
    with pytest.raises(UnknownName) as caught:
        Catalog().get(kind, "xyzzy")
    assert f"To add one, create {ours}/xyzzy.py, or FOLDER/{yours}/xyzzy.py and add " in str(caught.value)


def test_a_name_that_is_near_none_has_some_of_them() -> None:
    """And how many more there are."""
    with pytest.raises(UnknownName, match=r"No model named 'xyzzy'\. Known: \w+(, \w+){11} and \d+ more\. To add"):
        Catalog().get("model", "xyzzy")


def test_an_unknown_model_may_be_a_conftest_s() -> None:
    """A command does not read conftests, and an empty name is no model."""
    with pytest.raises(UnknownName, match="Only pytest reads a conftest's models"):
        Catalog().get("model", "my_model")
    with pytest.raises(UsageError, match="The name of the engine is empty"):
        Catalog().get("engine", "")


def test_no_torch() -> None:
    """Reading every definition of every kind, engines and meters too, imports none of the heavy libraries."""
    code = (
        "import sys; from perfsuite.catalog.registry import KINDS, Catalog; catalog = Catalog();"
        "[catalog.all(kind) for kind in KINDS];"
        "print(sorted({'torch', 'transformers', 'deepspeed', 'accelerate', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("None", "The rule 'mine' of my_watts returned NoneType: return a Line, as line_of() makes."),
        ("True", "The rule 'mine' of my_watts returned bool: return a Line, as line_of() makes."),
        ("1 / 0", "The rule 'mine' of my_watts failed: ZeroDivisionError: division by zero."),
    ],
)
def test_a_rule_that_says_nothing_is_no_success(tmp_path: Path, body: str, message: str) -> None:
    """A metric that its rule does not compare would pass."""
    rule = RULE.replace('"held by mine"', body)
    catalog = write(tmp_path, {"meters/mine.py": METER + METRIC.format("mine"), "rules/mine.py": rule})
    readings = {"my_watts": Reading(value=3.0)}
    new, old = samples.measurement(**readings), samples.measurement(**readings)

    with pytest.raises(UsageError, match=re.escape(message)):
        compare_metric(catalog.get("metric", "my_watts"), Scope(new, old, "zero3"))
