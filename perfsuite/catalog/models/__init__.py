"""One file per model family: its sizes in TOML, or Python that defines ``MODELS``, a tuple of Model."""
