"""A step as XLA compiles it: a model in flax, its loss, its gradients, and the optimizer, in place.

A program needs shapes alone, so it can also be compiled for devices that are not here. Imported in ranks only.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from perfsuite.catalog.definitions import Model
from perfsuite.engines import _flax
from perfsuite.errors import WrongEngine

AXIS = "ranks"
LEAVES = {"kernel": "weight", "embedding": "weight", "scale": "weight"}  # flax's names of what torch calls a weight
Arrays = dict[str, Any]  # by the parameter's name in torch; arrays, or what has their shape, dtype and sharding
Spec = Callable[[str, tuple[int, ...], int], Any]  # of a parameter: its name, its shape, the ranks → a PartitionSpec


class Program:
    """The step of a model of this ``family`` and configuration on these devices, one per rank.

    ``spec`` divides a parameter over the ranks. A micro-batch is the same for all ranks if it is ``shared``, and
    otherwise divided over them.
    """

    def __init__(self, model: Model, devices: Sequence[Any], spec: Spec, optimizer: Any, shared: bool) -> None:
        self.mesh = Mesh(devices, (AXIS,))
        self.optimizer = optimizer
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self.of_batch = self.replicated if shared else NamedSharding(self.mesh, PartitionSpec(AXIS))
        kind = _flax.MODELS[model.family]
        self._graph, abstract = nnx.split(nnx.eval_shape(lambda: kind(model.config, nnx.Rngs(0))))
        self._flat = nnx.to_flat_state(abstract)
        self.names = {path: _torch_name(path) for path, _ in self._flat}
        self._spec = spec

    def sharding(self, name: str, shape: tuple[int, ...]) -> Any:
        """How a parameter lies on the devices."""
        return NamedSharding(self.mesh, self._spec(name, shape, self.mesh.size))

    def parameters(self) -> Arrays:
        """The shapes of all parameters."""
        shapes = {self.names[path]: one.get_value().shape for path, one in self._flat}
        return {
            name: jax.ShapeDtypeStruct(shape, "float32", sharding=self.sharding(name, shape))
            for name, shape in shapes.items()
        }

    def state(self, parameters: Arrays) -> Any:
        """The shapes of the optimizer's state: each lies as its parameter does, and what belongs to none everywhere."""

        def placed(path: tuple[Any, ...], leaf: Any) -> Any:
            name = getattr(path[-1], "key", None)
            sharding = parameters[name].sharding if name in parameters else self.replicated
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

        return jax.tree.map_with_path(placed, jax.eval_shape(self.optimizer.init, parameters))

    def compile(self, parameters: Arrays, state: Any, inputs: Arrays, dtype: Any) -> Any:
        """The executable of a step that computes in ``dtype``. It needs the shapes of its arguments alone."""

        def loss_of(parameters: Arrays, inputs: Arrays) -> Any:
            flat = [(path, one.replace(parameters[self.names[path]].astype(dtype))) for path, one in self._flat]
            return nnx.merge(self._graph, nnx.from_flat_state(flat))(inputs)

        def step(parameters: Arrays, state: Any, inputs: Arrays) -> tuple[Arrays, Any, Any]:
            loss, gradients = jax.value_and_grad(loss_of)(parameters, inputs)
            updates, state = self.optimizer.update(gradients, state, parameters)
            return optax.apply_updates(parameters, updates), state, loss

        both = (parameters, state)
        kept = jax.tree.map(lambda array: array.sharding, both)
        compiled = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*kept, self.replicated))
        return compiled.lower(*both, inputs).compile()


def pin_to_cpu() -> None:
    """Let XLA compute on the CPU, with one thread, as torch does. Before its first use in a process."""
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=false {os.environ.get('XLA_FLAGS', '')}".strip()
    jax.config.update("jax_platforms", "cpu")


def optax_of(example: Any) -> Any:
    """An optimizer of torch in optax, with its numbers. Raises WrongEngine for any but AdamW and SGD."""
    import torch

    [options] = example.param_groups
    if isinstance(example, torch.optim.AdamW):
        (b1, b2), decay = options["betas"], options["weight_decay"]
        return optax.adamw(options["lr"], b1, b2, options["eps"], weight_decay=decay)
    if isinstance(example, torch.optim.SGD):
        return optax.sgd(options["lr"])
    raise WrongEngine(
        f"optax must have AdamW's or SGD's options, but the recipe's optimizer is {type(example).__name__}."
    )


def _torch_name(path: tuple[Any, ...]) -> str:
    """The name in torch of what is there in flax's model."""
    *modules, leaf = map(str, path)
    return ".".join([*modules, LEAVES.get(leaf, leaf)])
