"""JAX: the catalog's GPT-2 and T5 in flax.nnx, whose whole step XLA compiles for a mesh of all ranks (GSPMD).

Each rank is a process of JAX with one device of the mesh. It begins with the weights of the torch model, has its
batches and its optimizer's options, so its losses and its update are those of ``single``. What a step needs is what the
compiler says: nothing is in torch's allocator. A stand-in for t5x, which trains in this way and has no package.
"""

import dataclasses
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfsuite.catalog.definitions import Engine, Proposal
from perfsuite.errors import WrongEngine
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.rank.trainer import StepOutcome, Trainer

if TYPE_CHECKING:
    from perfsuite.engines._xla_program import Program

# Megatron's cut (arXiv 1909.08053, section 3): the columns of what enters a block, the rows of what leaves it.
COLUMNS, ROWS = {"c_attn", "c_fc", "q", "k", "v", "wi"}, {"c_proj", "o", "wo", "wte", "shared"}


class CompiledStep(Trainer):
    """Base of the layouts. ``executable`` is XLA's program of a whole step."""

    shared_batch = False  # whether all ranks have the same data
    divides = True  # whether a rank has a part of the parameters

    def __init__(self, session: Session, model: Module) -> None:
        super().__init__(session, model)
        self.whole = sum(one.numel() for one in model.parameters())  # parameters of all ranks
        _initialize(session)
        import jax

        self.program = self.program_for(session, jax.devices())
        self.turned = {f"{name}.weight" for name, module in model.named_modules() if _is_linear(module)}
        self.parameters: dict[str, Any] = {}
        for name, parameter in model.named_parameters():
            array = parameter.detach().numpy()
            array = array.T if name in self.turned else array
            sharding = self.program.sharding(name, array.shape)
            self.parameters[name] = jax.make_array_from_callback(array.shape, sharding, array.__getitem__)
        if missing := {*self.program.names.values()} ^ {*self.parameters}:
            raise WrongEngine(f"flax's model and torch's differ in their parameters: {', '.join(sorted(missing))}.")
        kept = jax.tree.map(lambda one: one.sharding, self.program.state(self.parameters))
        self.state = jax.jit(self.program.optimizer.init, out_shardings=kept)(self.parameters)
        inputs = self._placed(super().batch(0)[0].named)
        self.executable = self.program.compile(self.parameters, self.state, inputs, session.recipe.compute_dtype)

    @staticmethod
    def spec(name: str, shape: tuple[int, ...], ranks: int) -> Any:
        """How the parameter is divided over the ranks."""
        raise NotImplementedError

    @classmethod
    def program_for(cls, session: Session, devices: Sequence[Any]) -> "Program":
        """The program of a step on these devices. Raises WrongEngine for an optimizer that optax does not have."""
        from perfsuite.engines._xla_program import Program, optax_of

        model, optimizer = session.job.model, optax_of(session.recipe.example())
        return Program(model, devices, cls.spec, optimizer, cls.shared_batch)

    def batch(self, step: int) -> list[MicroBatch]:
        return [dataclasses.replace(one, inputs=self._placed(one.named)) for one in super().batch(step)]

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        [micro_batch] = batch
        self.session.mark("forward")
        self.parameters, self.state, loss = self.executable(self.parameters, self.state, micro_batch.inputs)
        loss.block_until_ready()
        self.session.mark("end")
        return StepOutcome(loss.addressable_data(0))

    def check(self) -> dict[str, str | int]:
        import jax

        ranks = self.session.world_size
        if (jax.process_count(), jax.device_count(), jax.local_device_count()) != (ranks, ranks, 1):
            raise WrongEngine(f"JAX must have one device in each of {ranks} ranks, but has {jax.devices()}.")
        here = sum(parameter.addressable_data(0).size for parameter in self.parameters.values())
        expected = sum(
            parameter.size // (1 if parameter.sharding.is_fully_replicated else ranks)
            for parameter in self.parameters.values()
        )
        if here != expected or (here < self.whole) != (self.divides and ranks > 1):
            raise WrongEngine(f"A rank must keep {expected:,} parameters of {self.whole:,}, not {here:,}.")
        return {"module": self.session.job.model.family, "backend": jax.default_backend(), "parameters": here}

    def whole_parameters(self) -> Iterator[tuple[str, Tensor]]:
        import jax
        import numpy
        import torch

        gather = jax.jit(lambda array: array, out_shardings=self.program.replicated)
        for name, array in self.parameters.items():
            whole = numpy.array(gather(array).addressable_data(0))
            yield name, torch.from_numpy(whole.T.copy() if name in self.turned else whole)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        import numpy
        import torch

        for array in self.parameters.values():
            if array.sharding.is_fully_replicated:
                yield torch.from_numpy(numpy.array(array.addressable_data(0))), None

    def _placed(self, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        """This rank's part of the global batch, or the whole if all have it."""
        import jax

        return {
            name: jax.make_array_from_process_local_data(self.program.of_batch, one.numpy().astype("int32"))
            for name, one in inputs.items()
        }


class Replicated(CompiledStep):
    """Every rank has all parameters, and its part of the batch."""

    divides = False

    @staticmethod
    def spec(name: str, shape: tuple[int, ...], ranks: int) -> Any:
        from jax.sharding import PartitionSpec

        return PartitionSpec()


class JaxSharded(CompiledStep):
    """Every rank has its rows of each parameter that the ranks divide, and of its optimizer state."""

    @staticmethod
    def spec(name: str, shape: tuple[int, ...], ranks: int) -> Any:
        from jax.sharding import PartitionSpec

        from perfsuite.engines._xla_program import AXIS

        return PartitionSpec(AXIS) if shape[0] % ranks == 0 else PartitionSpec()


class JaxCut(CompiledStep):
    """Tensor parallelism: every rank has its columns or rows of each matrix, and the whole batch."""

    shared_batch = True

    @staticmethod
    def spec(name: str, shape: tuple[int, ...], ranks: int) -> Any:
        from jax.sharding import PartitionSpec

        from perfsuite.engines._xla_program import AXIS

        *_, module, leaf = name.split(".")
        if module in COLUMNS:
            return PartitionSpec(AXIS) if leaf == "bias" else PartitionSpec(None, AXIS)
        return PartitionSpec(AXIS) if module in ROWS and leaf == "weight" else PartitionSpec()


def _initialize(session: Session) -> None:
    """Connect the ranks, once in a process. XLA gets one thread, as torch does."""
    import jax
    import torch.distributed as dist

    from perfsuite.engines._xla_program import pin_to_cpu

    if jax.distributed.is_initialized():
        return
    place: list[Any] = [None]
    if session.rank == 0:
        with socket.socket() as free:
            free.bind((os.environ["MASTER_ADDR"], 0))
            place = ["{}:{}".format(*free.getsockname())]
    dist.broadcast_object_list(place)
    pin_to_cpu()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(place[0], session.world_size, session.rank)
    session.departure.callback(jax.distributed.shutdown)


def _is_linear(module: Module) -> bool:
    """Whether torch keeps its weight as [out, in], which flax keeps as [in, out]."""
    import torch

    return isinstance(module, torch.nn.Linear)


def why_not(proposal: Proposal) -> str:
    """JAX's cells are those whose numbers torch has too."""
    model, layout = proposal.model, proposal.layout
    if model.family not in ("gpt2", "t5"):
        return f"{model.name} is not written in flax: {proposal.engine.name} trains GPT-2 and T5."
    if proposal.device is not None and not proposal.device.topology:
        return "perfsuite's JAX cells run on a CPU, or are compiled for a TPU."
    if "nodrop" not in proposal.techniques:
        return f"JAX draws other random numbers than torch: write {proposal.engine.name}+nodrop."
    heads = model.config.get("n_head") or model.config["num_heads"]
    if heads % layout.tensor or model.config["vocab_size"] % layout.tensor:
        return f"{layout.tensor} ranks do not divide the {heads} heads and the vocabulary of {model.name}."
    return ""


def _engine(name: str, trainer: type[CompiledStep], dimension: str, shards: frozenset[str] = frozenset()) -> Engine:
    return Engine(
        name=name,
        process="xla",
        trainer=trainer,
        dimension=dimension,
        shards=shards,
        packages=("jax", "flax", "optax"),
        preload=("flax.nnx", "optax"),
        why_not=why_not,
        source="https://docs.jax.dev/en/latest/notebooks/Distributed_arrays_and_automatic_parallelization.html",
    )


ENGINES = (
    _engine("jax_dp", Replicated, "replicas"),
    _engine("jax_fsdp", JaxSharded, "shards", frozenset({"optimizer", "gradients", "parameters"})),
    _engine("jax_tp", JaxCut, "tensor"),
)
