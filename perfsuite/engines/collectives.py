"""Communication only: one collective at every size from 1 KiB to 64 MiB, without a model.

A step is a sweep over the sizes. All ranks begin a size together, send its messages several times in a row (one
clock reading covers them), and then check the received data, outside the clock. A message's bytes are those of the
whole buffer, as in NCCL's tests (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md), whose bus
bandwidth is comparable between collectives and numbers of ranks.
"""

import time
from collections import Counter
from collections.abc import Iterator

from perfsuite.catalog.definitions import Engine, Proposal
from perfsuite.errors import RankError, WrongEngine
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.message_sizes import ELEMENT_BYTES, PERIOD, SIZES, SWEEP_BYTES, label, repeats
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.rank.trainer import StepOutcome, Trainer

TOLERANCE = 1e-5  # for sums of sums of fp32; data that is only moved is equal


class Exchange(Trainer):
    """Base of the collectives. ``seconds`` are those of one message of each size, from the last sweep."""

    collectives: tuple[str, ...]  # in the communication meter's terms

    def __init__(self, session: Session, model: Module) -> None:
        import torch

        super().__init__(session, model)
        self.ranks = session.world_size
        self.seconds: dict[int, float] = {}
        row = torch.arange(PERIOD, dtype=torch.float32, device=session.device)
        self.pattern = row.repeat(SIZES[-1] // ELEMENT_BYTES // PERIOD + 2)

    @property
    def bus_factor(self) -> float:
        """Bus bandwidth per algorithm bandwidth."""
        return (self.ranks - 1) / self.ranks

    def buffers(self, elements: int) -> tuple[Tensor, Tensor]:
        """This rank's send and receive buffers for a message of that many elements."""
        raise NotImplementedError

    def send(self, here: Tensor, there: Tensor) -> None:
        """Exchange one message."""
        raise NotImplementedError

    def expected(self, elements: int, times: int) -> Tensor:
        """The data that must have arrived after so many messages."""
        raise NotImplementedError

    def filled(self, elements: int, rank: int, first: int = 0) -> Tensor:
        """``rank``'s part of a message, from its element ``first`` on: no two ranks and no two neighbours are equal."""
        start = first % PERIOD
        return self.pattern[start : start + elements] + (rank + 1)

    def check(self) -> dict[str, str | int]:
        import torch.distributed as dist

        from perfsuite.meters.communication import counting_mode

        backend, wanted = dist.get_backend(), {"cpu": "gloo", "cuda": "nccl"}[self.session.job.device]
        if (backend, dist.get_world_size()) != (wanted, self.ranks):
            raise WrongEngine(
                f"Messages must go over {wanted} between {self.ranks} ranks, not {backend} between "
                f"{dist.get_world_size()}."
            )
        counted: Counter[str] = Counter()
        with counting_mode(lambda collective, operator, size, module: counted.update({collective: size})):
            self.send(*self.buffers(SIZES[0] // ELEMENT_BYTES))
        if counted != dict.fromkeys(self.collectives, SIZES[0]):
            raise WrongEngine(f"Must send {SIZES[0]} B by {' and '.join(self.collectives)}, but sent {dict(counted)}.")
        return {"collective": " and ".join(self.collectives), "backend": backend, "ranks": self.ranks}

    def batch(self, step: int) -> list[MicroBatch]:
        return []

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        import torch.distributed as dist

        for size in SIZES:
            here, there = self.buffers(size // ELEMENT_BYTES)
            dist.barrier()
            self.session.synchronize()
            begin = time.perf_counter()
            for _ in range(repeats(size)):
                self.send(here, there)
            self.session.synchronize()
            self.seconds[size] = (time.perf_counter() - begin) / repeats(size)
            self.prove(size, there)
            self.session.mark("end")
        return StepOutcome()

    def traffic(self) -> dict[str, int]:
        return dict.fromkeys(self.collectives, SWEEP_BYTES)

    def prove(self, size: int, there: Tensor) -> None:
        """Raise RankError unless the right numbers arrived."""
        expected = self.expected(size // ELEMENT_BYTES, repeats(size))
        difference = float((there - expected).abs_().max() / expected.max())
        if not difference < TOLERANCE:
            name = self.session.strategy.engine.name
            raise RankError(f"{name} of {label(size)} left numbers with an error of {difference:.1g} of the largest.")

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())


class AllReduce(Exchange):
    """In place, like a reduction of gradients: each message is the sum of the previous ones."""

    collectives = ("all_reduce",)

    @property
    def bus_factor(self) -> float:
        return 2 * (self.ranks - 1) / self.ranks

    def buffers(self, elements: int) -> tuple[Tensor, Tensor]:
        buffer = self.filled(elements, self.session.rank)
        return buffer, buffer

    def send(self, here: Tensor, there: Tensor) -> None:
        import torch.distributed as dist

        dist.all_reduce(there)

    def expected(self, elements: int, times: int) -> Tensor:
        ranks = self.ranks
        first_sum = self.filled(elements, 0).mul_(ranks).add_(ranks * (ranks - 1) / 2)
        return first_sum.mul_(float(ranks) ** (times - 1))


class AllGather(Exchange):
    """Every rank sends its shard and receives the whole."""

    collectives = ("all_gather",)

    def buffers(self, elements: int) -> tuple[Tensor, Tensor]:
        shard = self.filled(elements // self.ranks, self.session.rank)
        return shard, shard.new_zeros(elements)

    def send(self, here: Tensor, there: Tensor) -> None:
        import torch.distributed as dist

        dist.all_gather_into_tensor(there, here)

    def expected(self, elements: int, times: int) -> Tensor:
        import torch

        return torch.cat([self.filled(elements // self.ranks, rank) for rank in range(self.ranks)])


class ReduceScatter(Exchange):
    """Every rank sends the whole and receives its shard of the sum."""

    collectives = ("reduce_scatter",)

    def buffers(self, elements: int) -> tuple[Tensor, Tensor]:
        whole = self.filled(elements, self.session.rank)
        return whole, whole.new_zeros(elements // self.ranks)

    def send(self, here: Tensor, there: Tensor) -> None:
        import torch.distributed as dist

        dist.reduce_scatter_tensor(there, here)

    def expected(self, elements: int, times: int) -> Tensor:
        ranks, shard = self.ranks, elements // self.ranks
        return self.filled(shard, 0, first=self.session.rank * shard).mul_(ranks).add_(ranks * (ranks - 1) / 2)


class SendReceive(Exchange):
    """A ring: every rank sends to the next while it receives from the one before."""

    collectives = ("send", "recv")

    @property
    def bus_factor(self) -> float:
        return 1.0

    @property
    def before(self) -> int:
        """The rank that this one receives from."""
        return (self.session.rank - 1) % self.ranks

    def buffers(self, elements: int) -> tuple[Tensor, Tensor]:
        message = self.filled(elements, self.session.rank)
        return message, message.new_zeros(elements)

    def send(self, here: Tensor, there: Tensor) -> None:
        import torch.distributed as dist

        following = (self.session.rank + 1) % self.ranks
        both = [dist.P2POp(dist.isend, here, following), dist.P2POp(dist.irecv, there, self.before)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def expected(self, elements: int, times: int) -> Tensor:
        return self.filled(elements, self.before)


def why_not_sharded(proposal: Proposal) -> str:
    """Every rank has a shard of the smallest message."""
    elements, ranks = SIZES[0] // ELEMENT_BYTES, proposal.layout.replicas
    if elements % ranks:
        return f"{proposal.engine.name} divides messages evenly, which {ranks} ranks cannot do with {label(SIZES[0])}."
    return ""


def _engine(name: str, trainer: type[Exchange], sharded: bool = False) -> Engine:
    return Engine(
        name=name,
        process="communication",
        trainer=trainer,
        min_ranks=2,
        why_not=why_not_sharded if sharded else None,
        source="https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
    )


ENGINES = (
    _engine("all_reduce", AllReduce),
    _engine("all_gather", AllGather, sharded=True),
    _engine("reduce_scatter", ReduceScatter, sharded=True),
    _engine("send_recv", SendReceive),
)
