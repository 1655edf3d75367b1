"""Environments without some packages: links to all that they do not own."""

from importlib import metadata
from pathlib import Path

import pytest

from perfsuite.environments.environments import with_releases
from perfsuite.environments.leaving_out import folders_without
from perfsuite.errors import UsageError


def distribution(folder: Path, name: str, *files: str) -> None:
    """Installed files, and the list of them."""
    about = f"{name}-1.0.dist-info"
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(name)
    (folder / about).mkdir(parents=True)
    (folder / about / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    listed = [*files, f"{about}/METADATA", f"{about}/RECORD", "../../bin/tool"]
    (folder / about / "RECORD").write_text("".join(f"{file},,\n" for file in listed))


def there(*folders: Path) -> dict[str, metadata.Distribution]:
    return {found.name: found for found in metadata.distributions(path=[str(folder) for folder in folders])}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A packages folder with two distributions that share a folder, and one of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "site"
    distribution(folder, "left", "shared/left/a.py", "shared/left/deep/b.py", "left.py")
    distribution(folder, "right", "shared/right/a.py")
    distribution(folder, "other", "other/__init__.py")
    return folder


def test_what_a_distribution_owns_is_left_out(site: Path, tmp_path: Path) -> None:
    """And nothing else, also in a folder that it shares; another folder stays as it is."""
    beside = tmp_path / "beside"
    distribution(beside, "more", "more.py")
    made, same = folders_without(["left"], [str(site), str(beside)], there(site, beside), [])

    assert same == str(beside)
    assert sorted(path.name for path in Path(made).iterdir()) == [
        "other",
        "other-1.0.dist-info",
        "right-1.0.dist-info",
        "shared",
    ]
    assert [path.name for path in Path(made, "shared").iterdir()] == ["right"]
    assert Path(made, "shared", "right", "a.py").read_text() == "right"
    assert sorted(there(Path(made))) == ["other", "right"]
    assert Path(site, "left.py").exists()


@pytest.mark.parametrize("name", ["nothing", "unlisted"])
def test_what_cannot_be_left_out_is_named(site: Path, name: str) -> None:
    """It is not installed, or nothing says which files are its own."""
    (site / "unlisted-1.0.dist-info").mkdir()
    (site / "unlisted-1.0.dist-info" / "METADATA").write_text("Name: unlisted\nVersion: 1.0\n")
    with pytest.raises(UsageError, match=f"{name} .*, so no environment can be made without it"):
        folders_without([name], [str(site)], there(site), [])


def test_ranks_do_not_see_it() -> None:
    """Neither its modules nor its name, and all others as before."""
    environment = with_releases([], without=["iniconfig"])
    found = environment.origins(["iniconfig", "pytest", "torch"])

    assert found[0] == "" and all(found[1:])
