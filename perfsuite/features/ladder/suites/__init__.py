"""Benchmark suites for asv, a folder each: what a ladder runs at every rung.

A benchmark that does not apply says so by NotImplementedError in its setup: it has no number then, and nothing is told
of it. One that raises has failed, and so has one that tracks NaN or infinity, as the loss of a broken training is.
"""
