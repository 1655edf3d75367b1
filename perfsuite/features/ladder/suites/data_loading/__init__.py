"""torch's DataLoader over Hugging Face datasets, for asv: from Python 3.8, torch 1.12 and datasets 2.7 on.

Correctness comes first: a sample that is wrong without an exception is the worst that a release can do to training.
"""
