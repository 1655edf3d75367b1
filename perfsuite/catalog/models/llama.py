"""Llama 3: a decoder with rotary positions, RMS norm, grouped-query attention and a gated feed-forward; no dropout."""

from perfsuite.catalog.models._sizes import models_of

MODELS = tuple(models_of(__file__))
