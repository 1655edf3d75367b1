"""Clocks as they are before a user's code can exchange them, as libraries do that freeze the time of a test. A script's
process imports this at its start.
"""

from time import monotonic, perf_counter_ns

__all__ = ["monotonic", "perf_counter_ns"]
