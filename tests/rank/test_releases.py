"""What a release lacks, or another's release that it asks for, is refused in one sentence."""

import pytest

from perfsuite.errors import Unsupported
from perfsuite.rank.releases import need, need_release, refused


def test_what_is_there_is_not_refused():
    """An attribute, or a module that nothing has imported yet."""
    need("pytest.mark", "zero3")
    need("pytest.__main__", "zero3")


@pytest.mark.parametrize("path", ["pytest.no_such_name", "pytest.no.such.module"])
def test_what_is_missing_is_named(path):
    """The sentence names engine, library, release, what it lacks and the first release that has it."""
    with pytest.raises(Unsupported) as refusal:
        need(path, "zero3 with offload", since="99.0")

    assert str(refusal.value) == (
        f"zero3 with offload cannot run on pytest {pytest.__version__}, which has no {path}: 99.0 is the first that "
        "does."
    )


def test_an_older_release_is_refused():
    """By its number, where the library has no public name to ask for."""
    need_release("pytest", "1.0", "zero3", "hook")
    with pytest.raises(Unsupported, match=r"which has no hook: 9999\.1 is the first that does\.$"):
        need_release("pytest", "9999.1", "zero3", "hook")


def test_what_a_library_asks_for_is_passed_on():
    """Its own sentence, with the library that says it; other errors stay what they are."""
    sentence = r"^hf_trainer cannot run on pytest .*: Using it requires other>=1\.1\.0$"
    with pytest.raises(Unsupported, match=sentence), refused("hf_trainer", "pytest"):
        raise ImportError("Using it requires other>=1.1.0")
    with pytest.raises(ValueError, match="own"), refused("hf_trainer", "pytest"):
        raise ValueError("own")


def test_what_an_import_inside_lacks_is_passed_on():
    """transformers imports a module when it is asked for, and wraps what that raises. Other causes stay errors."""
    with pytest.raises(Unsupported, match=r": cannot import name 'Gone'$"), refused("hf_trainer", "pytest"):
        raise RuntimeError("Failed to import transformers.trainer") from ImportError("cannot import name 'Gone'")
    with pytest.raises(RuntimeError, match="own"), refused("hf_trainer", "pytest"):
        raise RuntimeError("own")


@pytest.mark.parametrize(("module", "kind"), [("pytest.inner", Unsupported), ("mine", None)])
@pytest.mark.parametrize(
    ("asked", "error", "reason"),
    [
        ("'text'.prepare_everything()", AttributeError, "has no attribute 'prepare_everything'"),
        ("(lambda: None)(keep=True)", TypeError, "unexpected keyword argument 'keep'"),
    ],
)
def test_what_another_library_lacks_is_passed_on(module, kind, asked, error, reason):
    """A library asks another for a name or an argument that its release has not. In other code it stays an error."""
    names = {"__name__": module}
    exec(compile(f"def ask(): return {asked}", "<library>", "exec"), names)

    with pytest.raises(kind or error, match=reason), refused("lora", "pytest"):
        names["ask"]()
