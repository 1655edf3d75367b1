"""Inference by ONNX Runtime on a CPU: the model is exported once, and its session computes each forward and loss.

The exporter is torch's, on the model as transformers builds it. The output is compared with torch's before a step is
timed. ``onnxruntime_int8`` has the weights of matrix products in 8 bits, quantized by ONNX Runtime (dynamic: the
activations are quantized when they are computed).

Its memory is counted to the byte: the aligned blocks that the library makes, which are its weights, those that it packs
for its kernels, and all that it computes. The arena and the memory pattern are off, since they take more than that and
keep it. Not counted are the graph and small objects on the C heap.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Engine, Proposal
from perfsuite.engines.inference import NO_DROPOUT
from perfsuite.errors import WrongEngine
from perfsuite.rank.batches import MicroBatch, make_batch
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.rank.trainer import StepOutcome, Trainer

LIBRARY = "onnxruntime_pybind11_state"
OUTPUTS = ["loss", "logits"]


class OnnxRuntime(Trainer):
    """One session with one thread. torch's parameters are freed before it starts."""

    bound = 1e-4  # of the logits, in their 2-norm: the same sums in another order (3e-7 in the four tiny families)
    opaque = "ONNX Runtime computes them, and torch's counter does not see its operators"

    def __init__(self, session: Session, model: Module) -> None:
        import torch

        super().__init__(session, model)
        model.eval()
        inputs = make_batch(session, 0)[0].named
        assert session.scratch
        session.scratch.mkdir(parents=True, exist_ok=True)
        if session.memory:
            session.memory.source.set_capacity(None)  # torch exports and compares, which inference does not need
        path = self.exported(inputs, session.scratch / "model.onnx")
        with torch.no_grad():
            expected = model(**inputs, use_cache=False).logits
        self.model = model.to("meta")
        self.start(path, inputs, expected)
        if session.memory:
            session.memory.source.set_capacity(session.job.capacity_bytes)

    def exported(self, inputs: dict[str, Tensor], path: Path) -> Path:
        """The file with the model. Its inputs are those of a batch, its outputs the loss and the logits."""
        import torch

        class WithLoss(torch.nn.Module):
            def __init__(self, model: Module) -> None:
                super().__init__()
                self.model = model

            def forward(self, *values: Tensor) -> tuple[Tensor, Tensor]:
                output = self.model(**dict(zip(inputs, values, strict=True)), use_cache=False)
                return output.loss, output.logits

        torch.onnx.export(  # T5 can be exported by the older exporter alone
            WithLoss(self.model).eval(),
            tuple(inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=OUTPUTS,
            dynamo=False,
        )
        return path

    def start(self, path: Path, inputs: dict[str, Tensor], expected: Tensor) -> None:
        """Start the session. ``difference`` is the 2-norm of how its logits differ from the expected ones, relative to
        that of the expected ones.
        """
        import onnxruntime
        import torch

        onnxruntime.disable_telemetry_events()
        memory = self.session.memory
        if memory:
            memory.source.count_library(LIBRARY)
        before = memory.source.blocks() if memory else {}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        self.onnx = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        after = memory.source.blocks() if memory else {}
        self.kept = {address: size for address, size in after.items() if address not in before}
        (logits,) = self.onnx.run(["logits"], _arrays(inputs))
        self.difference = float((torch.from_numpy(logits) - expected).norm() / expected.norm())

    def check(self) -> dict[str, str | int]:
        providers = self.onnx.get_providers()
        if providers != ["CPUExecutionProvider"]:
            raise WrongEngine(f"ONNX Runtime must run on its CPU provider, but it has {providers}.")
        if not self.difference <= self.bound:  # NaN, too
            raise WrongEngine(
                f"The logits of ONNX Runtime may differ by {self.bound:g} from torch's in their 2-norm, but they "
                f"differ by {self.difference:.2g}."
            )
        return {"module": "onnxruntime.InferenceSession", "mode": "eval", "providers": ", ".join(providers)}

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        loss_sum = 0.0
        for micro_batch in batch:
            self.session.mark("forward")
            (loss,) = self.onnx.run(["loss"], _arrays(micro_batch.named))
            loss_sum += float(loss) * (micro_batch.weight / len(batch))
        self.session.mark("end")
        return StepOutcome(loss_sum)

    def traffic(self) -> dict[str, int]:
        return {}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The blocks that the session made when it started, its weights, as tensors over their memory."""
        import torch

        for address, size in self.kept.items():
            if size:
                yield "parameters", torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)


class Int8(OnnxRuntime):
    """Weights in 8 bits, one scale per tensor."""

    bound = 0.05  # 0.014 to 0.025 in the four tiny families, with micro-batches of 2 and 8

    def exported(self, inputs: dict[str, Tensor], path: Path) -> Path:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        small = path.with_name("model.int8.onnx")
        quantize_dynamic(super().exported(inputs, path), small, weight_type=QuantType.QInt8)
        return small


def _arrays(inputs: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def why_not(proposal: Proposal) -> str:
    """A graph has the inputs of perfsuite's own batches, and its memory is counted on a CPU alone."""
    if not proposal.model.task:
        return f"{proposal.model.name} has batches of its own, whose structure a graph's inputs do not have."
    if proposal.device:
        return "on a GPU, ONNX Runtime's own allocator has the memory, which perfsuite does not count yet."
    return ""


_AUTOCAST = "torch's autocast is not in the exported graph; onnxruntime_int8 has weights in 8 bits"
ENGINES = tuple(
    Engine(
        name=name,
        process="inference",
        trainer=trainer,
        max_ranks=1,
        packages=("onnxruntime", "onnx"),
        refuses={
            **NO_DROPOUT,
            "bf16": _AUTOCAST,
            "fp16": _AUTOCAST,
            **dict.fromkeys(("compile", "compile_blocks"), "ONNX Runtime fuses operators itself"),
            "flash": "the kernels of the package flash-attn are in no graph",
        },
        why_not=why_not,
        source=source,
    )
    for name, trainer, source in (
        ("onnxruntime", OnnxRuntime, "https://onnxruntime.ai/docs/api/python/api_summary.html"),
        ("onnxruntime_int8", Int8, "https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html"),
    )
)
