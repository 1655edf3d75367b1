"""A backend of torch.compile that generates no code: dynamo traces as always, in seconds instead of a minute."""

from perfsuite.rank.faults.layers import recompiles


def without_code(session, trainer, meters):
    """Every layer is compiled again, by the backend that runs the traced graph as it is."""
    from perfsuite.rank.blocks import blocks

    for layer in blocks(trainer.model):
        assert layer._compiled_call_impl is not None
        layer.compile(backend="eager")


def compiles_twice(session, trainer, meters):
    """What every layer reads is another name in the first and in the second step."""
    recompiles(session, trainer, meters, most=2)
