"""Offload by DeepSpeed: its config, the settings that it would silently ignore, and the proof that it offloads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Proposal
from perfsuite.errors import RankError, Unsupported, WrongEngine
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.techniques.offload import DISK, ON_DISK

SMALLEST_FILE = 2**20  # bytes; deepspeed/runtime/swap_tensor/utils.py keeps smaller tensors in memory
SHARDED_ONLY = "DeepSpeed offloads parameters only in stage 3; in stages 1 and 2 it silently ignores offload_param"
BEFORE_STAGE_3 = {
    "offload_params": SHARDED_ONLY,
    "offload": SHARDED_ONLY,
    "nvme": SHARDED_ONLY,
    "nvme_optimizer": "DeepSpeed uses the disk only in stage 3; in stages 1 and 2 it keeps the tensors on the host",
}


def why_not(proposal: Proposal) -> str:
    """Why no part of the model would go to the disk; empty if some part does."""
    ranks, held = proposal.layout.data_ranks, 4 * proposal.model.parameters
    if not proposal.techniques.intersection(ON_DISK) or not held or held // ranks >= SMALLEST_FILE:
        return ""
    return (
        f"DeepSpeed keeps tensors smaller than {SMALLEST_FILE:,} bytes in memory, and a rank's share of "
        f"{proposal.model.name}'s master parameters is {held // ranks:,} bytes."
    )


def config(session: Session, model: Module) -> dict[str, Any]:
    """The sections of "zero_optimization" for the recipe; empty without offload.

    Raises Unsupported if the operator that reads and writes the disk is unavailable, or no parameter would go there.
    """
    recipe = session.recipe
    sections: dict[str, Any] = {}
    if DISK in (recipe.offload_optimizer, recipe.offload_parameters):
        _check_disk(session)
    if recipe.offload_optimizer:
        sections["offload_optimizer"] = {"device": recipe.offload_optimizer}
    if recipe.offload_parameters:
        sections["offload_param"] = {"device": recipe.offload_parameters}
    if recipe.offload_parameters == DISK:
        largest = max(parameter.numel() for parameter in model.parameters())
        count = len(list(model.parameters()))
        part = -(-largest // session.layout.data_ranks)
        if part * session.compute_dtype.itemsize < SMALLEST_FILE:
            raise Unsupported(
                f"DeepSpeed keeps tensors smaller than {SMALLEST_FILE:,} bytes in memory, and a rank's part of the "
                f"largest parameter of {session.job.model.name} is {part * session.compute_dtype.itemsize:,} bytes."
            )
        sections["offload_param"] |= {
            "max_in_cpu": 0,  # DeepSpeed's default would leave the first 10**9 elements in memory
            "buffer_size": part,  # one buffer holds one partition
            "buffer_count": count,  # a parameter keeps its buffer for as long as it stays gathered
        }
    for section in sections.values():
        if section["device"] == DISK:
            if session.scratch is None:
                raise RankError("Offload to a disk needs a folder for its files, but this rank has none.")
            session.scratch.mkdir(exist_ok=True)
            section["nvme_path"] = str(session.scratch)
    return sections


def check(session: Session, model: Module, optimizer: Any) -> dict[str, str | int]:
    """Prove where everything is, from DeepSpeed's own state and the files on the disk. Raises WrongEngine."""
    recipe, evidence = session.recipe, dict[str, str | int]()
    stage_3 = hasattr(optimizer, "offload_param")
    on_host = optimizer.offload_optimizer if stage_3 else optimizer.cpu_offload
    if bool(on_host) != bool(recipe.offload_optimizer):
        raise WrongEngine(f"Optimizer offload must be {recipe.offload_optimizer}, but DeepSpeed has {on_host}.")
    if stage_3 and optimizer.offload_param != bool(recipe.offload_parameters):
        raise WrongEngine(
            f"Parameter offload must be {recipe.offload_parameters}, but DeepSpeed has {optimizer.offload_param}."
        )
    if recipe.offload_optimizer:
        masters = optimizer.fp32_partitioned_groups_flat if stage_3 else optimizer.single_partition_of_fp32_groups
        _check_host("master parameters", masters)
        evidence["optimizer_offload"] = recipe.offload_optimizer
    if recipe.offload_parameters:
        partitions: list[Any] = list(model.parameters())
        # DeepSpeed's persistent parameters stay whole on the device, and so do their partitions.
        _check_host("parameters", (p.ds_tensor for p in partitions if not getattr(p, "ds_persist", False)))
        evidence["parameter_offload"] = recipe.offload_parameters
    if recipe.offload_optimizer == DISK:
        files = {Path(path): info.numel() for info in _swapped(optimizer) for path in info.get_swap_paths()}
        evidence["optimizer_elements_on_disk"] = _check_files("optimizer state", files, 4)
    if recipe.offload_parameters == DISK:
        element = session.compute_dtype.itemsize
        swapped: list[Any] = [parameter for parameter in model.parameters() if on_disk(parameter)]
        files = {Path(p.nvme_swapper.get_path(p, True)): p.ds_tensor.ds_numel for p in swapped}
        evidence["parameter_elements_on_disk"] = _check_files("parameters", files, element)
    return evidence


def on_disk(parameter: Any) -> bool:
    """Whether the partition of a stage-3 parameter is on the disk."""
    return bool(parameter.ds_tensor.final_location == DISK)


def swapped_elements(optimizer: Any) -> int:
    """The number of elements of this rank's master parameters on the disk."""
    return sum(info.numel() for info in _swapped(optimizer))


def held_on_host(optimizer: Any) -> Iterator[tuple[str, Tensor]]:
    """Tensors that stages 1 and 2 keep in addition to the masters for an offloaded optimizer, by category."""
    for partition in getattr(optimizer, "param_buffer_of_bit16_for_cpu_offload_groups", ()):
        yield "parameters", partition
    for gradient in getattr(optimizer, "accumulated_grads_in_cpu", {}).values():
        yield "gradients", gradient
    for name in ("temp_grad_buffer_for_cpu_offload", "temp_grad_buffer_for_gpu_offload"):
        if getattr(optimizer, name, None) is not None:
            yield "gradients", getattr(optimizer, name)


def _check_disk(session: Session) -> None:
    from deepspeed.accelerator import get_accelerator
    from deepspeed.ops.op_builder import AsyncIOBuilder

    if not AsyncIOBuilder().is_compatible():
        raise Unsupported(
            "DeepSpeed's async_io operator, which reads and writes the disk, needs libaio and its headers: "
            "apt-get install libaio-dev (Debian, Ubuntu) or dnf install libaio-devel."
        )
    whole = session.recipe.compute_dtype == "float32" and session.recipe.offload_parameters == DISK
    if whole and not get_accelerator().is_fp16_supported():  # partition_parameters.py: InsertPostInitMethod._set_dtype
        raise Unsupported(
            f"Without fp16 on this {session.job.device}, DeepSpeed reads every parameter from the disk as bf16, "
            "so the model would not stay in fp32. Add +bf16, or leave the parameters in memory (nvme_optimizer).",
            add=["bf16"],
        )


def _swapped(optimizer: Any) -> list[Any]:
    swapper = getattr(optimizer, "optimizer_swapper", None)
    return list(swapper.swap_params_info.values()) if swapper else []


def _check_host(what: str, tensors: Any) -> None:
    elsewhere = {tensor.device.type for tensor in tensors} - {"cpu"}
    if elsewhere:
        raise WrongEngine(f"All {what} must be offloaded to the host, but some are on {elsewhere}.")


def _check_files(what: str, files: dict[Path, int], element_bytes: int) -> int:
    """Check that every file has all of its elements; returns their number. State files appear with the first step."""
    sizes = {path: path.stat().st_size if path.exists() else 0 for path in files}
    short = [path.name for path, elements in files.items() if sizes[path] < elements * element_bytes]
    if short or not files:
        raise WrongEngine(f"The {what} must be on the disk; missing or too short files: {short or 'all'}.")
    return sum(files.values())
