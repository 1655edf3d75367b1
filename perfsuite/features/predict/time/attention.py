"""How fast fused attention is: a kernel's rate on long sequences, and what of it short ones and narrow heads reach.

``published.toml`` has the rates by generation and device, with their sources. The shapes of the curves are here.
"""

from dataclasses import dataclass

FULL = 128  # width of the heads that rates were measured with


@dataclass(frozen=True)
class AttentionKernel:
    """``rate`` is the name of its rate in Rates. It reaches half of it on ``fill`` tokens, and with heads as narrow as
    ``narrow`` half of what very wide ones would reach.
    """

    rate: str
    fill: float
    narrow: float

    def reached(self, keys: float, width: float) -> float:
        """The share of its rate, 0 to 1, on sequences of so many ``keys`` with heads of a ``width``."""
        heads = min(1.0, width / (width + self.narrow) * (FULL + self.narrow) / FULL)
        return keys / (keys + self.fill) * heads if keys else 1.0


# flash: FlashAttention-2 on A100, causal, forward and backward, heads of 128: 99, 133, 155, 173, 182 and 189 TFLOP/s on
# 512 to 16,384 tokens (arXiv 2307.08691, figure 4); on H100 191 to 335 forward and 214 to 322 backward (arXiv
# 2407.08608, figures 5 and 6), where heads of 64 reach 0.9 of that.
# flash3: FlashAttention-3 there, 292 to 616 and 316 to 561, heads of 64 0.82 of that. cuDNN on H200 and GB200 needs
# twice as many tokens: benchmark/sdpa_benchmark_training/results of NVIDIA/cudnn-frontend at 3929da2ef4.
# splash: MaxText's on TPUs, with a fitted rate; its curve is taken to be alike.
# triton: of llm-foundry, FlashAttention-1 in Triton; its rate was fitted over 512 to 65,536 tokens, as one.
KERNELS = {
    "triton": AttentionKernel("attention", 0.0, 0.0),
    "splash": AttentionKernel("attention", 500.0, 36.0),
    "flash": AttentionKernel("flash", 500.0, 16.0),
    "flash3": AttentionKernel("attention3", 1000.0, 36.0),
}
