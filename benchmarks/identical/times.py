"""From microseconds to tenths of a second: what asv repeats a thousand times, and what it repeats ten times."""


def time_version():
    """Parsing of a version: microseconds."""
    from packaging.version import Version

    Version("2.0.post1")


def time_specifiers():
    """Filtering of versions: a millisecond."""
    from packaging.specifiers import SpecifierSet

    list(SpecifierSet(">=1.0,!=1.5,<3").filter([f"{major}.{minor}" for major in range(5) for minor in range(10)]))


def time_sort():
    """Sorting of numbers: tens of milliseconds, with their memory."""
    sorted((7919 * number) % 1000003 for number in range(100_000))


def time_loop():
    """A loop: a tenth of a second."""
    total = 0
    for number in range(1_500_000):
        total += number & 7
