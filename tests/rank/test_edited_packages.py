"""Whether somebody has changed an installed package where it lies."""

import base64
import hashlib
import os
from pathlib import Path

import pytest

from perfsuite.rank.installed import Known

TEXT = "def step():\n    return 1\n"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The module of a package that an installer has written an hour ago."""
    folder = tmp_path / "site-packages"
    about, module = folder / "quick-1.0.dist-info", folder / "quick" / "__init__.py"
    about.mkdir(parents=True)
    module.parent.mkdir()
    module.write_text(TEXT)
    digest = base64.urlsafe_b64encode(hashlib.sha256(TEXT.encode()).digest()).decode().rstrip("=")
    (about / "METADATA").write_text("Name: quick\nVersion: 1.0\n")
    (about / "RECORD").write_text(f"quick/__init__.py,sha256={digest},{len(TEXT)}\nquick-1.0.dist-info/RECORD,,\n")
    before = (about / "RECORD").stat().st_mtime - 3600
    for file in (module, about / "RECORD"):
        os.utime(file, (before, before))
    return module


def edited(module: Path) -> dict[str, str]:
    return Known([str(module.parent.parent)]).edited([str(module)])


def test_an_untouched_package_is_its_release(package: Path) -> None:
    """Also one that was copied, whose files are new."""
    assert edited(package) == {}
    os.utime(package)
    assert edited(package) == {}


def test_a_file_that_was_changed_in_place_is_seen(package: Path) -> None:
    """By its content: another edit is another origin."""
    package.write_text(TEXT.replace("return 1", "return 2"))
    first = edited(package)
    package.write_text(TEXT.replace("return 1", "return 3"))

    assert first["quick"].startswith("edited-")
    assert edited(package).keys() == {"quick"}
    assert edited(package) != first
