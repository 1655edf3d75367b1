"""A model calls its head as if it had no labels: put in as the faults of rank/faults."""


def labels_lost(session, trainer, meters):
    """What hands the labels to the head is gone, so it returns logits."""
    trainer.model._forward_pre_hooks.clear()
