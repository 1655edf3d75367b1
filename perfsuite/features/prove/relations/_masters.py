"""DeepSpeed's float32 copies of the parameters: its first update puts them into the parameters."""

from collections.abc import Iterator
from typing import Any

from perfsuite.rank.script.probes import ProvedScript


def unlike_masters(torch: Any, script: ProvedScript) -> Iterator[str]:
    """The parameters that were changed after their copies were made. All ranks must ask. Those of ZeRO-3 are shards,
    which nobody changes by hand.
    """
    from deepspeed.utils import safe_get_full_fp32_param

    for name, parameter in script.parameters():
        master = None if hasattr(parameter, "ds_id") else safe_get_full_fp32_param(parameter)
        if master is not None and not torch.equal(master.reshape(parameter.shape).to(parameter.dtype), parameter):
            yield name
