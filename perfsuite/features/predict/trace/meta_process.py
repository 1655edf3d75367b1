"""Builds models of transformers without what it imports for other uses, which takes a fifth of the time.

    python -m perfsuite.features.predict.trace.meta_process

Reads and writes what meta_model says.
"""

import sys

# transformers imports them where it finds them: for quantized checkpoints, losses of images, generation and dispatch.
# No class of a model needs them to be built.
UNUSED = ("accelerate", "scipy", "sklearn", "torchao")


def main() -> None:
    """Describe all configs of the standard input."""
    sys.modules.update(dict.fromkeys(UNUSED))  # type: ignore[arg-type]  # None: it is not there
    from perfsuite.features.predict.trace import meta_model

    meta_model.main()


if __name__ == "__main__":
    main()
