"""An environment with other releases repairs nothing that was in conflict before, and says what else moves."""

import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from package_index import Index, Upload, wheel
from packaging.requirements import Requirement

from perfsuite.catalog.registry import Catalog
from perfsuite.environments import environments
from perfsuite.environments.requirements import is_pinned
from perfsuite.errors import UsageError
from perfsuite.records.change import Change
from perfsuite.run.sides import Sides, sides
from perfsuite.show.text.trial_words import brought_text


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``install(name, version, needs)``: offered by an index, and installed here without its dependencies."""
    here, uploads = tmp_path / "site", []
    here.mkdir()
    (tmp_path / "wheels").mkdir()
    monkeypatch.setattr(environments, "_site_folders", lambda: [str(here)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def offer(name, version, needs=(), *, installed=False):
        path = wheel(tmp_path / "wheels", name, version, needs=needs)
        if "+" not in version:  # what somebody has changed is in no index
            uploads.append(Upload(path, datetime(2026, 1, 1, tzinfo=UTC)))
        if installed:
            zipfile.ZipFile(path).extractall(here)

    with Index(uploads).serve() as index:
        index.configure(monkeypatch, tmp_path / "uv")
        yield offer


def test_what_was_in_conflict_before_stays(install):
    """Neither a package that wants an older release than there was, nor what it wants and nobody installed."""
    install("demo-lib", "1.5", installed=True)
    install("demo-lib", "2.0")
    install("demo-old", "1.0", ["demo-lib<1", "demo-other==1.0", "demo-numbers<2"], installed=True)
    install("demo-old", "2.0", ["demo-numbers<2"])
    install("demo-numbers", "2.4", installed=True)
    install("demo-numbers", "1.9")
    install("demo-other", "1.0")

    assert environments.with_releases(["demo-lib==2.0"]).installed == (("demo-lib", "2.0"),)


def test_what_is_required_does_not_bring_old_conflicts_with_it(install):
    """The requested release needs a package whose own needs have never been met."""
    install("demo-app", "1.0", ["demo-old"], installed=True)
    install("demo-app", "1.1", ["demo-old"])
    install("demo-old", "1.0", ["demo-numbers<2"], installed=True)
    install("demo-numbers", "2.4", installed=True)
    install("demo-numbers", "1.9")

    assert environments.with_releases(["demo-app==1.1"]).installed == (("demo-app", "1.1"),)


def test_what_the_release_itself_moves_is_said(install, tmp_path):
    """It was right before: so it comes along, and whatever compares the two sides names it."""
    install("demo-lib", "1.5", installed=True)
    install("demo-lib", "2.0")
    install("demo-user", "1.0", ["demo-lib<2"], installed=True)
    install("demo-user", "2.0", ["demo-lib>=2"])
    there, _ = sides(("demo-lib==2.0", "here"), Catalog(), tmp_path)
    without = Sides(Catalog(), tmp_path).without([Change("demo-lib", "2.0", "1.5")])

    assert there.environment.installed == (("demo-lib", "2.0"), ("demo-user", "2.0"))
    for side in (there, without):
        assert [(change.name, change.before) for change in side.brought] == [("demo-user", "2.0")]
        assert side.environment.unmet == ()
    assert brought_text(there.brought, there.environment.unmet) == " (brings demo-user 2.0)"


def test_what_the_release_breaks_for_good_is_said(install, tmp_path):
    """No release of a package fits: it stays, and is named with what it needs. What was wrong before is not."""
    install("demo-lib", "1.5", installed=True)
    install("demo-lib", "2.0")
    install("demo-user", "1.0", ["demo-lib<2", "demo-lib!=1.5"], installed=True)
    there, _ = sides(("demo-lib==2.0", "here"), Catalog(), tmp_path)

    assert there.environment.installed == (("demo-lib", "2.0"),)
    assert there.environment.unmet == (("demo-user", "demo-lib<2"),)
    assert brought_text(there.brought, there.environment.unmet) == " (demo-user needs demo-lib<2)"


def test_a_release_that_somebody_has_changed_is_replaced(install):
    """1.5+ours satisfies ==1.5 for installers, so it would stay, and both sides of a trial would be the same."""
    install("demo-lib", "1.5+ours", installed=True)
    install("demo-lib", "1.5")

    there = environments.with_releases(["demo-lib==1.5"])

    assert there.installed == (("demo-lib", "1.5"),)
    assert environments.with_releases(["demo-lib==1.5+ours"]).installed == ()


def test_a_changed_release_that_would_stay_is_refused(install, monkeypatch):
    """Whatever an installer makes of it: nothing is compared with itself."""
    install("demo-lib", "1.5+ours", installed=True)
    install("demo-lib", "1.5")
    monkeypatch.setattr(environments, "_VERSIONS", "print('[\"1.5+ours\"]')")

    with pytest.raises(UsageError, match=r"demo-lib==1\.5 was installed in .*, but 1\.5\+ours is imported there"):
        environments.with_releases(["demo-lib==1.5"])


@pytest.mark.parametrize(
    ("requirement", "version", "same"),
    [
        ("torch==2.13.0", "2.13.0+cpu", True),
        ("torch==2.13.0", "2.13.0", True),
        ("transformers==5.23", "5.23.0", True),
        ("transformers==5.23.0", "5.23.0+ours", False),
        ("transformers==5.23.0+ours", "5.23.0+ours", True),
        ("transformers==5.23.0", "5.24.0", False),
        ("transformers @ file:///wheel.whl", "5.23.0", False),
    ],
)
def test_what_a_pin_names(requirement, version, same):
    """A build for a kind of device is the release, and a changed one is not."""
    assert is_pinned(Requirement(requirement), version) is same
