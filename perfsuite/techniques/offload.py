"""Offload: what a rank keeps in the host's memory or on a local disk instead of on its device.

Offload of the optimizer takes the master parameters, the gradients that the step uses and the optimizer state
(arXiv 2101.06840); the optimizer then steps on the host. Offload of the parameters brings each layer's to the device
when it runs (arXiv 2104.07857). Without replicas it is called on one rank: ``zero2+offload_optimizer``,
``zero3+offload``. On a CPU host and device are one memory: offload costs its copies and saves nothing there.
"""

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.errors import Unsupported
from perfsuite.rank.extensions import build_lock

HOST, DISK = "cpu", "nvme"  # DeepSpeed's names


def build_disk_operator() -> None:
    """Build what reads and writes the disk, unless the ranks are going to say that it cannot be built.

    Raises Unsupported where CUDA's is asked for and no CUDA toolkit is here.
    """
    from deepspeed.ops.op_builder import AsyncIOBuilder
    from deepspeed.ops.op_builder.builder import MissingCUDAException

    if AsyncIOBuilder().is_compatible():
        try:
            with build_lock():
                AsyncIOBuilder().load()
        except MissingCUDAException as error:
            raise Unsupported(
                "DeepSpeed builds what reads the disk by nvcc: set CUDA_HOME to a CUDA toolkit."
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
    _offload("offload_optimizer", "Optimizer state, and what it steps, in the host's memory.", HOST, None),
    _offload("offload_params", "Parameters in the host's memory.", None, HOST),
    _offload("offload", "Parameters, gradients and optimizer state in the host's memory.", HOST, HOST),
    _offload("nvme_optimizer", "Optimizer state on a disk: that of TMPDIR.", DISK, None),
    _offload("nvme", "Parameters and optimizer state on a disk: that of TMPDIR.", DISK, DISK),
)
NAMES = tuple(technique.name for technique in TECHNIQUES if not technique.default)
ON_DISK = ("nvme_optimizer", "nvme")
ALL_OR_NOTHING = dict.fromkeys(
    [name for name in NAMES if name != "offload"],
    "FSDP moves parameters, gradients and optimizer state to the host together, and to no disk: +offload",
)


def why_not_fsdp(proposal: Proposal) -> str:
    """What FSDP's offload needs."""
    if "offload" in proposal.techniques and proposal.device is None:
        return f"on a CPU host and device are one memory, and {proposal.engine.name} then moves nothing"
    return ""
