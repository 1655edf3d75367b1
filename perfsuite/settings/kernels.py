"""The instruction sets that a CPU's kernels may have. A rank needs these words, and no setting."""

PORTABLE, NATIVE = "portable", "native"
