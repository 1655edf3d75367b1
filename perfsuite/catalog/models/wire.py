"""The wire between the ranks: no model, for cells that measure the cost of a message (wire-all_reduce-cpu_x2)."""

from perfsuite.catalog.models._sizes import without_weights

MODELS = (without_weights("communication", micro_batch=0, sequence_length=0),)
