"""How tests compare two trainings number by number."""


def worst(one, other, metric):
    """The largest relative difference of a metric between two measurements over all steps."""
    assert (one.outcome, other.outcome) == ("fits", "fits"), (one.failure, other.failure)
    return difference_of(one.readings, other.readings, metric)


def difference_of(one, other, metric="loss"):
    """The same between two measurements' readings."""
    pairs = list(zip(one[metric].samples, other[metric].samples, strict=True))
    assert len(pairs) >= 5  # as many steps have a gradient norm of perfsuite's own
    return max(abs(a - b) / abs(a) for a, b in pairs)
