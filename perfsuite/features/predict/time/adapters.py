"""Fine-tuning with adapters (LoRA, arXiv 2106.09685): what they add to products whose weights are frozen."""

from perfsuite.features.predict.time.costs import Product
from perfsuite.features.predict.time.shape import LayerStack

# Bytes of a frozen weight by its format: 4 bits have a scale in 8 bits for each block of 64, and one in fp32 for each
# 256 of these (arXiv 2305.14314, section 3); 8 bits have one in fp32 for each row.
BASES = {"bf16": 2.0, "int8": 1.0, "nf4": 0.5 + 1 / 64}
# Which matrices of a layer have adapters: all, those of attention, or those of queries, keys and values.
TARGETS = ("all", "attention", "qkv")
# Bytes per element of what an adapter gives, which is added to what the frozen matrix gives: two reads and a write.
# Forward that is the output, backward the gradient of the input: LinearLoRA of NVIDIA-NeMo/Automodel, LoRALinear of
# NVIDIA-NeMo/Megatron-Bridge and lora/layer.py of peft.
SUM = 6.0


def beside(product: Product, rank: int) -> tuple[Product, Product]:
    """The two narrow products of an adapter: down to its rank, and up."""
    return Product(product.m, rank, product.k), Product(product.m, product.n, rank)


def dequantised_bytes(product: Product, base: str) -> float:
    """Bytes that one pass moves to bring a frozen weight into half precision: it is read, and written."""
    return (BASES[base] + 2.0) * product.groups * product.n * product.k if base != "bf16" else 0.0


def adapter_parameters(stack: LayerStack, rank: int, targets: str = "all") -> int:
    """Parameters of a layer's adapters: one beside each matrix of attention and of the dense feed-forward, or fewer."""
    heads, pairs = stack.heads * stack.head_width, stack.kv_heads * stack.head_width
    inputs = 3 * stack.hidden + heads + 2 * pairs if stack.heads else 0
    output = stack.hidden + heads if stack.heads and targets != "qkv" else 0
    inner = stack.experts.shared if stack.experts else stack.feed_forward
    forward = (3 if stack.gated else 2) * (stack.hidden + inner) if inner and targets == "all" else 0
    return rank * (inputs + output + forward)
