"""perfsuite: stops LLM-training performance from regressing. `pytest --perf -k zero3` is the front door."""

from perfsuite.catalog.definitions import Model, Workload

__all__ = ["Model", "Workload"]
