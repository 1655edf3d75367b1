"""The GPT models of Megatron-LM's scaling paper, 1.7 billion to one trillion parameters, and GPT-3 175B."""

from perfsuite.catalog.models._sizes import models_of

MODELS = tuple(models_of(__file__, like="gpt2"))
