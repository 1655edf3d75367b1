"""This node's connections to other nodes, as Linux lists them."""

from pathlib import Path

SYSFS = Path("/sys/class")


def networks(sysfs: Path = SYSFS) -> dict[str, float]:
    """The bytes per second of each InfiniBand or RoCE port that is up, {"mlx5_0:1": 50e9}; without any, those of each
    Ethernet device that is up. A virtual device, and one that does not know its speed, is left out.

    Sources: the kernel's Documentation/ABI/stable/sysfs-class-infiniband (``rate``, ``state``) and
    Documentation/ABI/testing/sysfs-class-net (``speed`` in Mbit/s, ``operstate``).
    """
    ports = sorted(sysfs.glob("infiniband/*/ports/*"))
    fabric = {f"{port.parent.parent.name}:{port.name}": _gigabits(port) for port in ports}
    devices = [one for one in sorted(sysfs.glob("net/*")) if (one / "device").exists()]
    ethernet = {one.name: _megabits(one) for one in devices}
    return _known(fabric) or _known(ethernet)


def _known(rates: dict[str, float]) -> dict[str, float]:
    return {name: rate for name, rate in rates.items() if rate}


def _gigabits(port: Path) -> float:
    """``400 Gb/sec (4X NDR)`` of a port that is ``4: ACTIVE``."""
    rate = _read(port / "rate").split()
    return float(rate[0]) * 1e9 / 8 if rate and "ACTIVE" in _read(port / "state") else 0.0


def _megabits(device: Path) -> float:
    speed = _read(device / "speed")
    return float(speed) * 1e6 / 8 if speed.isdigit() and _read(device / "operstate") == "up" else 0.0


def _read(path: Path) -> str:
    """Empty if there is no such file, or if the kernel does not answer."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
