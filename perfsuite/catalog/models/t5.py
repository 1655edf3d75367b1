"""T5 (version 1.0): an encoder and a decoder with relative position buckets, RMS norm and a tied head."""

from perfsuite.catalog.models._sizes import models_of

MODELS = tuple(models_of(__file__))
