"""Benchmark suites for asv, a folder each: what a ladder runs at every rung."""
