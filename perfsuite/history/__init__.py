"""History across releases: a ladder makes the versions of a library the x-axis of asv, whose own is commits."""
