"""The formats of checkpoints. Each saves a trainer into a folder and loads it from there, as its library documents.

All methods are collective, but for ``alone``. ``folder`` is one that all ranks see.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfsuite.rank.torch_types import Tensor

SHARDS = 4  # files of a model in safetensors: transformers' limit of 5 GB would put a small one into one file
HELD_SECONDS = 5.0  # how long the files of an async save wait for the training to go on
TAG = "saved"  # DeepSpeed's folder of one checkpoint


class Format:
    """Base of the formats."""

    def save(self, trainer: Any, folder: Path) -> Callable[[], object]:
        """Save. When it returns, the training may go on; what it returns waits until all is written."""
        raise NotImplementedError

    def load(self, trainer: Any, folder: Path) -> None:
        """Load weights and optimizer state into a trainer of the same layout."""
        raise NotImplementedError

    def whole(self, trainer: Any) -> Mapping[str, Tensor]:
        """What ``alone`` must read, on rank 0."""
        return {name: tensor.detach().clone() for name, tensor in trainer.whole_parameters()}

    def alone(self, trainer: Any, folder: Path) -> Mapping[str, Tensor]:
        """What this rank reads without the others, as a training on another number of ranks would."""
        raise NotImplementedError

    def is_blocked(self, trainer: Any, folder: Path) -> bool | None:
        """Whether a save returns only after its files are written; None if it is meant to."""
        return None


class Dcp(Format):
    """https://docs.pytorch.org/docs/stable/distributed.checkpoint.html"""

    def state(self, trainer: Any, **options: Any) -> dict[str, Any]:
        """The nested state of model and optimizer, with the names of the model as it was built."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

        model, optimizer = get_state_dict(trainer.module, trainer.optimizer, options=StateDictOptions(**options))
        return {"model": model, "optimizer": optimizer}

    def save(self, trainer: Any, folder: Path) -> Callable[[], object]:
        _dcp().save(self.state(trainer), checkpoint_id=folder)
        return lambda: None

    def load(self, trainer: Any, folder: Path) -> None:
        state = self.state(trainer)
        _dcp().load(state, checkpoint_id=folder)
        self.set(trainer, state)

    def set(self, trainer: Any, state: dict[str, Any], **options: Any) -> None:
        """Put the state into model and optimizer."""
        from torch.distributed.checkpoint import state_dict as torch_state

        known = torch_state.StateDictOptions(**options)
        # One by one: set_state_dict takes a rank without a model's state for one that sets the optimizer's alone.
        torch_state.set_model_state_dict(trainer.module, state["model"], options=known)
        torch_state.set_optimizer_state_dict(trainer.module, trainer.optimizer, state["optimizer"], options=known)

    def whole(self, trainer: Any) -> Mapping[str, Tensor]:
        state = self.state(trainer, full_state_dict=True, cpu_offload=True)
        return {name: tensor.clone() for name, tensor in _tensors(state)}  # a later step changes the counts of steps

    def alone(self, trainer: Any, folder: Path) -> Mapping[str, Tensor]:
        import torch
        from torch.distributed.checkpoint.metadata import TensorStorageMetadata

        known = _dcp().FileSystemReader(folder).read_metadata().state_dict_metadata
        read: dict[str, Any] = {
            name: torch.empty(one.size, dtype=one.properties.dtype)
            for name, one in known.items()
            if isinstance(one, TensorStorageMetadata)
        }
        _dcp().load(read, checkpoint_id=folder, no_dist=True)
        return read


class DcpAsync(Dcp):
    """Its messages need a process group of their own, over gloo: training sends others meanwhile."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self.group = dist.new_group(backend="gloo")

    def save(self, trainer: Any, folder: Path, **how: Any) -> Callable[[], object]:
        future: Any = _dcp().async_save(self.state(trainer), checkpoint_id=folder, process_group=self.group, **how)
        return lambda: future.result()

    def is_blocked(self, trainer: Any, folder: Path) -> bool | None:
        """Its files are held back until the save has returned: if that waits for them, it waits in vain."""
        writer: Any = _dcp().FileSystemWriter
        returned = threading.Event()
        in_vain = []

        class HeldWriter(writer):  # type: ignore[misc]
            def write_data(self, *arguments: Any, **keywords: Any) -> Any:
                in_vain.append(not returned.wait(HELD_SECONDS))
                return super().write_data(*arguments, **keywords)

        written = self.save(trainer, folder, storage_writer=HeldWriter(folder))
        returned.set()
        written()
        return any(in_vain)


class Safetensors(Dcp):
    """transformers' save_pretrained, and the optimizer's whole state beside it, as Accelerate's save_state does."""

    def save(self, trainer: Any, folder: Path) -> Callable[[], object]:
        import torch

        state = self.state(trainer, full_state_dict=True, cpu_offload=True)
        if trainer.session.rank == 0:
            size = sum(tensor.nbytes for tensor in state["model"].values())
            trainer.model.save_pretrained(folder, state_dict=state["model"], max_shard_size=-(-size // SHARDS))
            torch.save(state["optimizer"], folder / "optimizer.pt")
        return lambda: None

    def load(self, trainer: Any, folder: Path) -> None:
        import torch
        from safetensors.torch import load_file

        state: dict[str, Any] = {"model": {}, "optimizer": {}}
        if trainer.session.rank == 0:
            for file in sorted(folder.glob("*.safetensors")):
                state["model"] |= load_file(file)
            state["optimizer"] = torch.load(folder / "optimizer.pt", weights_only=True)
        # The file has a tied parameter under one of its names.
        self.set(trainer, state, full_state_dict=True, broadcast_from_rank0=True, strict=False)

    def whole(self, trainer: Any) -> Mapping[str, Tensor]:
        return Format.whole(self, trainer)

    def alone(self, trainer: Any, folder: Path) -> Mapping[str, Tensor]:
        import transformers

        kind: Any = getattr(transformers, trainer.session.job.model.model_class)
        return dict(kind.from_pretrained(folder).named_parameters())


class DeepSpeedCheckpoint(Format):
    """https://deepspeed.readthedocs.io/en/latest/model-checkpointing.html"""

    def save(self, trainer: Any, folder: Path) -> Callable[[], object]:
        trainer.module.save_checkpoint(str(folder), tag=TAG)
        return lambda: None

    def load(self, trainer: Any, folder: Path) -> None:
        trainer.module.load_checkpoint(str(folder), tag=TAG)

    def alone(self, trainer: Any, folder: Path) -> Mapping[str, Tensor]:
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        whole: Mapping[str, Tensor] = get_fp32_state_dict_from_zero_checkpoint(str(folder), tag=TAG)
        return whole


def _dcp() -> Any:
    """torch exports its functions without naming them in __all__."""
    import torch.distributed.checkpoint as dcp

    return dcp


def _tensors(state: Mapping[str, Any], prefix: str = "") -> Any:
    """The tensors of nested dictionaries, by their dotted names."""
    import torch

    for key, value in state.items():
        if isinstance(value, Mapping):
            yield from _tensors(value, f"{prefix}{key}.")
        elif isinstance(value, torch.Tensor):
            yield f"{prefix}{key}", value
