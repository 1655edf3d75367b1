"""The GPT models of Megatron-LM's scaling paper, 1.7 billion to one trillion parameters, and GPT-3 175B."""

from perfsuite.catalog.models._sizes import sizes_of
from perfsuite.catalog.models.gpt2 import gpt

MODELS = tuple(gpt("megatron", size) for size in sizes_of(__file__))
