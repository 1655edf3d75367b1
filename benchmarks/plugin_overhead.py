"""The cost of the installed plugin in a plain pytest run: python benchmarks/plugin_overhead.py [--repeat N]

Runs pytest on one empty test in turn with and without the plugin, and prints both medians, their difference and ratio.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perfsuite.system.units import show_seconds

WITHOUT = ["-p", "no:perfsuite.plugin"]


def seconds(folder, options):
    """Wall seconds of one pytest run in the folder."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - begin


def main():
    """Interleave the runs, so that a slow moment of the machine affects both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_nothing.py").write_text("def test_nothing():\n    assert True\n")
        seconds(folder, [])
        pairs = [(seconds(folder, []), seconds(folder, WITHOUT)) for _ in range(repeat)]
    with_plugin, without = (statistics.median(column) for column in zip(*pairs, strict=True))
    added = statistics.median(one - other for one, other in pairs)
    print(f"with the plugin     {show_seconds(with_plugin)}")
    print(f"without             {show_seconds(without)}")
    print(f"added (median pair) {show_seconds(added)}")
    print(f"ratio               {statistics.median(one / other for one, other in pairs):.3f}")


if __name__ == "__main__":
    main()
