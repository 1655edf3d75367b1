"""History across releases: a ladder makes a library's versions the x-axis of asv, which otherwise uses commits."""
