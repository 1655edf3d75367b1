"""FLOPs of a model on fake tensors, in a fork of the rank, since it may keep one, or die of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsuite.rank.batches import definition_of
from perfsuite.rank.build_model import build_for_counting
from perfsuite.rank.forked import NoAnswer, in_a_fork, reason_of
from perfsuite.rank.grouped import grouped_output
from perfsuite.rank.tasks import make_sample

if TYPE_CHECKING:
    from perfsuite.rank.session import Session

from perfsuite.meters._flop_counter import flop_counter, hole

COUNT_SECONDS = 180.0  # the other ranks wait, and the launcher ends those that do so for 300
MOST_READS = 10_000  # of numbers on the host; all are 1, so a loop that waits for another one never ends
NONE_KNOWN = "it has no operator that torch's counter of FLOPs knows"


def count_model_flop(session: Session) -> int:
    """Model FLOPs of one optimizer step of one replica. Padding is computed like every other position, so it counts.

    Inference has no backward. Generation counts one forward over prompt and new tokens together: with the cache, every
    position passes through the model once. The head at every position and full attention count. Raises NoAnswer with
    the reason if the model cannot be counted.
    """
    import torch

    def in_the_fork() -> int:
        torch.set_num_threads(1)  # makes the pool anew; two threads of a backward that both do die (pytorch #178535)
        return _count_on_fakes(session)

    if torch.cuda.is_initialized():  # such a process cannot be forked
        try:
            flop = _count_on_fakes(session)
        except Exception as error:
            raise NoAnswer(reason_of(error)) from error
    else:
        flop = in_a_fork(in_the_fork, COUNT_SECONDS)
    if not flop:
        raise NoAnswer(NONE_KNOWN)
    return flop * session.recipe.accumulation


def _count_on_fakes(session: Session) -> int:
    """The FLOPs of one forward, and of its backward if the cell trains. Raises whatever the model raises."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    class OneFakeMode(FakeTensorMode):
        """Stays one mode if a model copies its layers, as torch.nn.TransformerEncoder does: two cannot be mixed."""

        def __deepcopy__(self, memo: dict[int, Any]) -> OneFakeMode:
            return self

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten._grouped_mm.default:
                return grouped_output(*args, **(kwargs or {}))
            return super().__torch_dispatch__(function, types, args, kwargs)

    micro_batch = session.job.workload.micro_batch
    sample = make_sample(definition_of(session), seed=0)
    by_value = torch.autograd.set_detect_anomaly(False)  # it looks for NaN, which fakes do not have
    with OneFakeMode(), by_value:
        model = build_for_counting(session)
        inputs = {name: torch.ones((micro_batch, *row.shape), dtype=torch.long) for name, row in sample.items()}
        training = session.strategy.engine.process == "training"
        with flop_counter() as counter:
            with torch.set_grad_enabled(training), _values_are_one():
                loss = model(**inputs).loss
            if training:
                loss.backward()
    if counter.why_not or counter.unknown:
        raise NoAnswer(counter.why_not or hole(counter.unknown))
    return int(counter.get_total_flops())


def _values_are_one() -> Any:
    """Lets a model that reads a number on the host (``.item()``) read 1, since a fake tensor has no values. A model
    whose shapes depend on it, as the attention of Bloom in transformers 4.44, cannot be counted.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class OnesMode(TorchDispatchMode):
        asked = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten._local_scalar_dense.default:
                self.asked += 1
                if self.asked > MOST_READS:
                    raise NoAnswer(f"it reads more than {MOST_READS:,} numbers on the host")
                dtype = args[0].dtype
                return True if dtype is torch.bool else 1.0 if dtype.is_floating_point else 1
            return function(*args, **(kwargs or {}))

    mode: Any = OnesMode
    return mode()
