"""Offload: tensors that a rank keeps in host memory or on a local disk instead of on its device.

Offload of the optimizer includes the master parameters, the gradients that the step uses and the optimizer state
(arXiv 2101.06840); the optimizer then steps on the host. Offload of the parameters copies each layer's to the device
when it runs (arXiv 2104.07857). Strategies with it include ``zero2+offload_optimizer``,
``zero3+offload``. On a CPU host and device share one memory: offload costs its copies and saves nothing there.
"""

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.errors import Unsupported
from perfsuite.rank.extensions import build_lock

HOST, DISK = "cpu", "nvme"  # DeepSpeed's names


def build_disk_operator() -> None:
    """Build the operator for the disk, unless the ranks are going to report that it cannot be built.

    Raises Unsupported if CUDA's is needed and there is no CUDA toolkit.
    """
    from deepspeed.ops.op_builder import AsyncIOBuilder
    from deepspeed.ops.op_builder.builder import MissingCUDAException

    if AsyncIOBuilder().is_compatible():
        try:
            with build_lock():
                AsyncIOBuilder().load()
        except MissingCUDAException as error:
            raise Unsupported(
                "DeepSpeed builds its disk operator with nvcc: set CUDA_HOME to a CUDA toolkit."
            ) from error


def _offload(name: str, meaning: str, optimizer: str | None, parameters: str | None) -> Technique:
    return Technique(
        name=name,
        slot="offload",
        order=25,
        meaning=meaning,
        default=optimizer is None and parameters is None,
        sets={"offload_optimizer": optimizer, "offload_parameters": parameters},
        prepare=build_disk_operator if DISK in (optimizer, parameters) else None,
    )


TECHNIQUES = (
    _offload("no_offload", "Everything is on the device.", None, None),
    _offload("offload_optimizer", "Optimizer state, master parameters and gradients in host memory.", HOST, None),
    _offload("offload_params", "Parameters in host memory.", None, HOST),
    _offload("offload", "Parameters, gradients and optimizer state in host memory.", HOST, HOST),
    _offload("nvme_optimizer", "Optimizer state on a disk: that of TMPDIR.", DISK, None),
    _offload("nvme", "Parameters and optimizer state on a disk: that of TMPDIR.", DISK, DISK),
)
NAMES = tuple(technique.name for technique in TECHNIQUES if not technique.default)
ON_DISK = ("nvme_optimizer", "nvme")
ALL_OR_NOTHING = dict.fromkeys(
    [name for name in NAMES if name != "offload"],
    "FSDP offloads parameters, gradients and optimizer state together, and only to the host: use +offload",
)


def refused(why: str) -> dict[str, str]:
    """The refusals of an engine that offloads nothing, for the reason ``why``; they name engines that do."""
    return dict.fromkeys(NAMES, f"{why}; zero2, zero3 and fsdp2 offload")


def why_not_fsdp(proposal: Proposal) -> str:
    """The reason why FSDP cannot offload; empty if it can."""
    if "offload" in proposal.techniques and proposal.device is None:
        return f"on a CPU host and device share one memory, so {proposal.engine.name} moves nothing"
    return ""
