"""``python -m perfsuite.features.ladder.inherit ENVIRONMENT FILE``: the part of `install-rung` for rungs that inherit.

The rung is the running environment with the releases in the file, like an environment of `perfsuite ab`; asv's
environment adds both after its own site-packages, by a .pth.
"""

import sys
from pathlib import Path

from perfsuite.environments.environments import site_packages, with_releases
from perfsuite.errors import PerfsuiteError

PTH = "perfsuite_rung.pth"


def main(environment: Path, releases: Path) -> None:
    """Write the .pth. Raises PerfsuiteError if the releases cannot be installed."""
    rung = with_releases(releases.read_text().splitlines())
    packages = site_packages(Path(rung.python).parents[1])
    Path(site_packages(environment), PTH).write_text(f"import site; site.addsitedir({packages!r})\n")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except PerfsuiteError as error:
        sys.exit(f"perfsuite: {error}")
