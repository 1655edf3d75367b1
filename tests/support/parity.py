"""How tests compare two trainings number by number."""


def readings_of(measure, cell, *faults):
    """The readings of a cell that fits."""
    measurement = measure(cell, *faults)
    assert measurement.outcome == "fits", measurement.failure
    return measurement.readings


def worst(one, other, metric):
    """The largest relative difference of a metric between two measurements over all steps."""
    assert (one.outcome, other.outcome) == ("fits", "fits"), (one.failure, other.failure)
    return difference_of(one.readings, other.readings, metric)


def difference_of(one, other, metric="loss"):
    """The same between two measurements' readings."""
    pairs = list(zip(one[metric].samples, other[metric].samples, strict=True))
    assert len(pairs) >= 4  # so many steps come before the timed ones, which have no gradient norm
    return max(abs(a - b) / abs(a) for a, b in pairs)
