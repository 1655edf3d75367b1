"""The regressions of reports, and the issues about them."""
