"""Which layout to train with: every one that fits in memory by a closed form, ordered by its predicted time."""
