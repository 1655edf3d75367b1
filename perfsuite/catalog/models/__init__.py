"""One file per model family; a file defines ``MODELS``, a tuple of Model."""
