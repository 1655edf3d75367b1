"""Naive model parallelism in one process: accelerate spreads the layers over all devices of a rank, as transformers'
``device_map="balanced"`` does. It replaces ``model.parallelize()``, which transformers no longer has.

One device works at a time: hooks copy the hidden states to the device of the next layer. The model is built on the
first device, like that of every engine, and then spread.
"""

from collections import Counter
from typing import Any

from perfsuite.catalog.definitions import Engine, Proposal
from perfsuite.errors import Unsupported, WrongEngine
from perfsuite.rank.blocks import blocks, size
from perfsuite.rank.native import LoopTrainer
from perfsuite.rank.torch_types import Module, TorchDevice
from perfsuite.techniques import offload


class DeviceMap(LoopTrainer):
    """The plain loop around a model whose hooks move its inputs."""

    def wrap(self, model: Module) -> Module:
        import torch
        from accelerate import dispatch_model, infer_auto_device_map
        from accelerate.utils import get_balanced_memory

        whole = sorted({type(block).__name__ for block in blocks(model)})
        if not whole:
            name = self.session.job.model.name
            raise Unsupported(
                f"device_map must not cut through a layer of {name}, which does not say in _no_split_modules what its "
                "layers are."
            )
        # The memory that is free would depend on what else runs, and so would the map.
        most = {device.index: torch.cuda.get_device_properties(device).total_memory for device in self.session.devices}
        most = get_balanced_memory(model, most, no_split_module_classes=whole)
        placed = infer_auto_device_map(model, most, no_split_module_classes=whole)
        skipped = getattr(model, "_skip_keys_device_placement", None)
        spread: Module = dispatch_model(model, placed, main_device=self.session.device.index, skip_keys=skipped)
        return spread

    def check(self) -> dict[str, str | int]:
        """Each layer lies whole on the device of accelerate's map, and each device has some."""
        layers: Counter[TorchDevice] = Counter()
        known = set(map(id, blocks(self.model)))
        for name, layer in self.model.named_modules():
            if id(layer) not in known:
                continue
            wanted, there = self._device_of(name), {parameter.device for parameter in layer.parameters()}
            if wanted is None or there != {wanted}:
                found = " and ".join(sorted(map(str, there)))
                raise WrongEngine(f"device_map must hold {name} on {wanted or 'a device'}, but it is on {found}.")
            layers[wanted] += 1
        devices = self.session.devices
        if set(layers) != set(devices):
            raise WrongEngine(
                f"device_map must use {len(devices)} devices, but the {len(known)} layers of "
                f"{self.session.job.model.name} are on {' and '.join(sorted(map(str, layers)))} alone."
            )
        parameters = list(self.model.parameters())
        weights = {
            device: size(parameter for parameter in parameters if parameter.device == device) for device in devices
        }
        here: dict[str, str | int] = {"devices": len(devices)}
        here |= {f"layers on {device}": layers[device] for device in devices}
        here |= {f"bytes of weights on {device}": weights[device] for device in devices}
        return self.evidence(**here)

    def _device_of(self, name: str) -> TorchDevice | None:
        """The device that accelerate's map gives to the module; None if it gives none."""
        import torch

        placed: dict[str, Any] = getattr(self.module, "hf_device_map", {})
        around = [one for one in placed if f"{name}.".startswith(f"{one}." if one else "")]
        return torch.device("cuda", placed[max(around, key=len)]) if around else None

    def traffic(self) -> dict[str, int]:
        return {}


def why_not(proposal: Proposal) -> str:
    """The reason why the layers cannot be spread; empty if they can."""
    if proposal.device is None:
        return (
            "device_map spreads a model over the devices of one process, and torch knows one CPU only; pp_naive runs "
            "the same split with two processes"
        )
    return ""


ENGINES = (
    Engine(
        name="device_map",
        trainer=DeviceMap,
        dimension="devices",
        min_ranks=2,
        preload=("accelerate",),
        refuses={
            **offload.refused("perfsuite spreads layers over GPUs alone"),
            "compile": "accelerate's hooks copy between devices in Python, where torch.compile cuts its graph",
            "qlora": "perfsuite does not move quantized matrices to another device",
        },
        why_not=why_not,
        source="https://huggingface.co/docs/accelerate/concept_guides/big_model_inference",
    ),
)
