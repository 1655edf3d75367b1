"""GPT-2: a decoder with learned positions, layer norm before each block, dropout and a tied head."""

from perfsuite.catalog.models._sizes import models_of

MODELS = tuple(models_of(__file__))
