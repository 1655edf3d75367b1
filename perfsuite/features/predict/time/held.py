"""What one rank holds: the layers of its stage, and their parameters before any sharding over replicas."""

from perfsuite.features.predict.time.adapters import adapter_parameters
from perfsuite.features.predict.time.pipeline_fill import balanced_stages, even_stages
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import Shape


def stage_layers(shape: Shape, setup: Setup) -> tuple[float, ...]:
    """The layers of every stage."""
    if setup.balanced:
        weight = shape.hidden * shape.vocabulary / shape.stacks[-1].layer_parameters
        return balanced_stages(shape.layers, weight, setup.layout.pipeline)
    return even_stages(shape.layers, setup.layout.pipeline)


def trained(shape: Shape, setup: Setup) -> tuple[float, float]:
    """Those of them that train: all, or the adapters of the fullest stage."""
    if not setup.adapter:
        return held(shape, setup)
    layers = stage_layers(shape, setup)[0] / shape.layers
    own = sum(stack.layers * adapter_parameters(stack, setup.adapter, setup.adapted) for stack in shape.stacks)
    return layers * own / setup.layout.tensor, 0.0


def held(shape: Shape, setup: Setup) -> tuple[float, float]:
    """Parameters of the fullest stage's rank: those that every token passes, and its experts'."""
    stages, width = setup.layout.pipeline, setup.layout.tensor
    last = shape.stacks[-1]
    layers = stage_layers(shape, setup)[0] / shape.layers  # of all layers, those in the first stage
    dense = sum(stack.layers * stack.dense_parameters for stack in shape.stacks)
    experts = sum(stack.layers * stack.expert_parameters for stack in shape.stacks)
    if stages == 1:
        dense += shape.extra * (last.dense_parameters + 2 * shape.hidden**2)
        experts += shape.extra * last.expert_parameters
        tables = shape.hidden * (shape.vocabulary * (1 if shape.tied else 2) + shape.positions)
    else:
        tables = shape.hidden * shape.vocabulary
    return (layers * dense + tables) / width + shape.beside, layers * experts / (setup.experts * setup.expert_tensor)
