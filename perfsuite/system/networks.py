"""This node's connections to other nodes, as Linux lists them."""

import contextlib
import ipaddress
import socket
from pathlib import Path

from perfsuite.errors import UsageError

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
    ethernet = {device.name: _megabits(device) for device in devices}
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


def own_address(name: str) -> str:
    """This machine's address of that name, for a listener that other machines reach.

    Debian gives a machine's own name an address in 127.0.0.0/8, which no other machine reaches. It then is the address
    from which the machine reaches others, if it has one. Raises UsageError for an unknown name.
    """
    try:
        address = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise UsageError(f"The address {name} of this machine is unknown: {error.strerror}.") from error
    if name == address or name == "localhost" or not ipaddress.ip_address(address).is_loopback:
        return str(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route, contextlib.suppress(OSError):
        route.connect(("192.0.2.1", 9))  # RFC 5737: nobody's. A datagram socket sends nothing to connect
        return str(route.getsockname()[0])
    return str(address)
