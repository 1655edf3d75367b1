"""What a machine with one GPU says in its first minutes, on one page: memory, times, the gate, overhead, baselines.

    python benchmarks/first_gpu.py collect wheels                    # where there is a package index
    python benchmarks/first_gpu.py measure FOLDER --wheels wheels    # on the GPU's machine; it needs no network
    python benchmarks/first_gpu.py page FOLDER                       # the page again, from what was measured

The machine needs one GPU, torch, transformers and accelerate. Each result is written as soon as it is known, and a
second start goes on where the first one stopped. Every part has a share of the minutes; what it leaves unused is for
the parts after it. What was not reached is listed on the page, FOLDER/first_gpu.html. Exit code 1 if there is such a
thing.

On an emulated GPU (perfsuite emulate --gpus h200 -- python benchmarks/first_gpu.py …) all parts run. Times are absent
there, and so are baselines.
"""

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = "packages"  # in the results' folder: what --wheels has installed
MINUTES = 9.0


def main() -> int:
    """Collect wheels, measure, run one part, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "action", nargs="?", default="measure", help="collect, measure (the default), page, or one of the parts"
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("first_gpu_results"), help="of wheels or results")
    parser.add_argument("--wheels", type=Path, help="the folder that collect has filled")
    parser.add_argument("--cells", nargs="+", metavar="ID", help="other cells than the 20 of first_gpu_parts/cells.py")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"for all parts together ({MINUTES:g})")
    parser.add_argument("--python", nargs="+", default=["3.11", "3.12", "3.13"], help="versions to collect wheels for")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    sys.path[:0] = [str(ROOT)]
    sys.path.append(str(folder / PACKAGES))
    from first_gpu_parts import packages

    if arguments.action == "collect":
        return packages.collect(folder, arguments.python)
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.wheels:
        packages.install(arguments.wheels.resolve(), folder / PACKAGES)
    if missing := packages.missing():
        print(f"{', '.join(missing)} not installed here: add --wheels FOLDER, which collect fills.", file=sys.stderr)
        return 2
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*sys.path[:2], *sys.path[-1:]]))
    from first_gpu_parts import parts

    from perfsuite.errors import PerfsuiteError

    try:
        return parts.run(arguments.action, folder, arguments.cells, 60 * arguments.minutes)
    except PerfsuiteError as error:
        print(f"first_gpu.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
