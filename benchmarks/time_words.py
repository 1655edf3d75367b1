"""What the readers of tables share: the clusters' networks, and a layout in the planner's words."""

from collections.abc import Mapping

GBIT = 1e9 / 8
# Bytes per second of the network per device: clusters of the sources.
SELENE = 25e9  # 8 cards of HDR, 200 Gbit/s each, per node: arXiv 2104.04473, section 5
VTRAIN = 800 * GBIT / 8  # the configuration of VIA-Research/vTrain: 800 Gbit/s per node
ROCE = 1600 * GBIT / 8  # the README of llm-foundry: 1,600 Gbit/s per node
EFA = 50e9  # 8 × 400 Gbit/s per node of H100
EDR = 100 * GBIT / 8  # one card of 100 Gbit/s per node of V100


def words(number: Mapping[str, int], *more: str) -> str:
    """A layout in the planner's words, of the columns tp, pp, dp, cp, ep, etp, vpp and micro_batch."""
    found = [f"{name}{number.get(name, 1)}" for name in ("tp", "pp", "dp")]
    found += [f"{name}{number[name]}" for name in ("cp", "ep", "etp") if number.get(name, 1) > 1]
    found += [f"v{number['vpp']}"] if number.get("vpp", 1) > 1 else []
    return " ".join([*found, f"b{number['micro_batch']}", *filter(None, more)])


def numbers(line: Mapping[str, str]) -> dict[str, int]:
    """The columns of a line that are whole numbers."""
    return {name: int(value) for name, value in line.items() if value.isdigit()}
