"""Rows of token ids: no model, for cells that only load data (rows-hf_map-cpu_x2)."""

from perfsuite.catalog.models._sizes import without_weights

MODELS = (without_weights("data", micro_batch=4, sequence_length=16),)
