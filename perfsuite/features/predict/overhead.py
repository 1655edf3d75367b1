"""A GPU's memory outside of torch's tensors: constants with sources, none measured by perfsuite."""

from perfsuite.catalog.definitions import Device

MIB = 2**20
# CUDA's context with the kernels of torch's libraries, loaded lazily since CUDA 11.8. People report 290 to 430 MiB for
# torch 2 (PyTorch forum and issues); 430 is the cautious choice. bert-large's documentation has 1,343, without lazy
# loading.
CONTEXT = 430 * MIB
# torch's default for CUBLAS_WORKSPACE_CONFIG: ":4096:2:16:8", 8 MiB and 128 KiB per handle and stream, and 32 MiB on
# Hopper (aten/src/ATen/cuda/CublasHandlePool.cpp). torch allocates it from its own allocator. Each thread has its own
# handle: autograd's thread runs backward, another runs forward.
CUBLAS_WORKSPACE = {"default": 8 * MIB + 128 * 1024, "hopper": 32 * MIB}
HOPPER = 9.0
# NCCL: 4 MiB of buffer per channel, direction and peer of a ring (NCCL_BUFFSIZE, docs.nvidia.com/deeplearning/nccl),
# with the two to a dozen channels that it opens within a node. Most people see 256 MiB for one communicator.
NCCL = 256 * MIB


def overhead(device: Device, world_size: int, backward: bool = True) -> dict[str, int]:
    """Bytes by name, with or without a backward."""
    hopper = device.compute_capability is not None and HOPPER <= device.compute_capability < HOPPER + 1
    workspace = CUBLAS_WORKSPACE["hopper" if hopper else "default"]
    known = {"context": CONTEXT, "cublas_workspace": workspace * (2 if backward else 1)}
    return known | ({"nccl": NCCL} if world_size > 1 else {})
