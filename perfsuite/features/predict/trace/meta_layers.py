"""One layer of a model on the meta device as numbers: attention, recurrence, feed-forward and experts, by its modules.

Modules differ in their names and alike in their shapes. What no shape or attribute says is refused, never guessed.
"""

from collections.abc import Iterator
from typing import Any

import torch

from perfsuite.features.predict.architecture import LayerKind

# What modules and configs call the same number.
HEAD_WIDTH = ("head_dim", "head_size", "attention_head_size", "key_value_proj_dim", "d_kv")
HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "decoder_attention_heads")
CHOSEN = ("top_k", "num_experts_per_tok", "moe_k", "moe_topk", "moe_top_k", "num_selected_experts", "top_k_experts")
COUNT = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
QUERIES, KEYS, OUT = ("q_proj", "query", "q"), ("k_proj", "key", "k"), ("o_proj", "out_proj", "dense", "c_proj", "o")
CROSS = ("cross", "encoder_attn", "encdec")
# In names of attention, or of its parameters, that reads some tokens by a rule that no closed form has.
SPARSE = (
    "sparse", "global", "localattention", "localself", "window", "ngram", "lsh", "mra", "nystrom", "yoso", "convbert",
    "indexer",
)  # fmt: skip


class NoForm(Exception):
    """A model or a layer that no closed form describes; the text names it."""


def layer_kind(where: str, number: int, layer: Any, config: Any, hidden: int) -> LayerKind:
    """The numbers of a layer, the ``number``-th of its list. Raises NoForm with its name and class."""
    parts = list(mixers(layer))
    mixed = {id(parameter) for _, module in parts for parameter in module.parameters()}
    found = _mixed(where, number, parts, config, hidden)
    classes = [type(module).__name__ for _, module in parts]
    named = [(path, one) for path, one in layer.named_modules() if is_experts(path, one, mixed)]
    routed = [one for one in named if not any(one[0].startswith(f"{other[0]}.") for other in named)]
    inside = {id(parameter) for _, module in routed for parameter in module.parameters()}
    if len(routed) > 1:
        raise NoForm(f"{where}.{routed[1][0]} ({type(routed[1][1]).__name__}) is a second group of experts")
    for path, module in routed:
        classes.append(type(module).__name__)
        found |= experts(f"{where}.{path} ({classes[-1]})", module, layer, config, hidden)
    others = [
        (path, parameter)
        for path, module in layer.named_modules()
        for parameter in module.parameters(recurse=False)
        if parameter.dim() > 1 and id(parameter) not in mixed | inside
    ]
    widths = feed_forward(others, hidden)
    if not mixed and not routed and sum(widths) * hidden != elements(one for _, one in others):
        raise NoForm(f"{where} ({type(layer).__name__}) has other matrices than its feed-forward's, and no attention")
    if routed:
        found["shared"] = sum(widths) // (3 if found["gated"] else 2)
        found["feed_forward"] = found["shared"] + found["chosen"] * found["expert_width"]
    else:
        widths = widths or [one.numel() // hidden for _, one in others if hidden in one.shape]
        if len(widths) > 1:  # a gate is a matrix more, or half of a fused one
            found |= {"feed_forward": min(widths), "gated": sum(widths) >= 3 * min(widths)}
    classes += [type(layer.get_submodule(path.rpartition(".")[0])).__name__ for path, _ in others]
    every = [parameter for parameter in layer.parameters() if id(parameter) not in inside]
    tables = {id(one.weight) for one in layer.modules() if isinstance(one, torch.nn.Embedding)}
    matrices = elements(one for one in every if one.dim() > 1 and id(one) not in tables)
    return LayerKind(
        where=where,
        classes=tuple(dict.fromkeys(classes)),
        matrices=matrices,
        small=elements(every) - matrices + found.pop("biases", 0),
        **found,
    )


def _mixed(where: str, number: int, parts: list[tuple[str, Any]], config: Any, hidden: int) -> dict[str, Any]:
    """The numbers of a layer's attention and recurrence. Raises NoForm."""
    found: dict[str, Any] = {}
    for path, module in parts:
        name = type(module).__name__
        place = f"{where}.{path} ({name})"
        if any("Experts" in type(one).__name__ for one in module.modules()):
            raise NoForm(f"{place} has experts of attention, which have no closed form")
        if (state := state_of(module)) is not None:
            found["state"] = found.get("state", 0) + state
        elif word := sparse(module, config):
            raise NoForm(f"{place} chooses what it attends to ({word}), which has no closed form")
        elif "heads" not in found:
            found["cross"] = any(word in f"{path} {name}".lower() for word in CROSS)
            found |= attention(place, module, config, hidden) | {"window": window(number, module, config)}
        elif any(word in f"{path} {name}".lower() for word in CROSS):
            found["cross"] = True
        else:
            raise NoForm(f"{place} is a second attention, which has no closed form")
    return found


def sparse(module: Any, config: Any) -> str:
    """The word for which an attention has no closed form; empty if it has one."""
    own = type(config).__name__.removesuffix("Config")  # a model may be called linear, and its attention is not
    if "LinearAttention" in type(module).__name__.removeprefix(own):
        return "linear"
    names = [type(one).__name__ for one in module.modules()] + [name for name, _ in module.named_parameters()]
    return next((word for word in SPARSE if any(word in name.lower() for name in names)), "")


def mixers(layer: Any) -> Iterator[tuple[str, Any]]:
    """The outermost modules that mix tokens: attention and recurrences."""
    taken: list[str] = []
    for path, module in layer.named_modules():
        name = type(module).__name__
        outer = not path or "DecoderLayer" in name or "EncoderLayer" in name
        if outer or any(path.startswith(f"{one}.") for one in taken):
            continue
        if ("Attention" in name or name.endswith("MLA") or state_of(module) is not None) and any(
            parameter.dim() > 1 for parameter in module.parameters()
        ):
            taken.append(path)
            yield path, module


def state_of(module: Any) -> int | None:
    """The elements of a recurrence's state for one sample; None for a module that is none.

    Mamba (arXiv 2312.00752): inner width times state. Griffin (arXiv 2402.19427): its width. The delta rule (arXiv
    2412.06464) and Lightning Attention (arXiv 2401.04658): a matrix of each head. A short convolution (LFM2) has no
    other state than its kernel's inputs.
    """
    name = type(module).__name__
    if "RecurrentBlock" in name:
        return first(module, "lru_width")
    if (size := first(module, "ssm_state_size", "state_size")) and (inner := first(module, "intermediate_size")):
        return inner * size
    if "DeltaNet" in name or "DeltaAttention" in name:
        values = first(module, "num_v_heads", "num_heads")
        return values * first(module, "head_k_dim", "head_dim") * first(module, "head_v_dim", "head_k_dim", "head_dim")
    if "LightningAttention" in name:
        return first(module, "num_attention_heads") * first(module, "head_dim") ** 2
    return 0 if "ShortConv" in name else None


def attention(place: str, module: Any, config: Any, hidden: int) -> dict[str, Any]:
    """Heads and their widths. A projection's shape says what no number of the config does."""
    parts = list(module.modules())
    whole = elements(parameter for parameter in module.parameters() if parameter.dim() > 1)
    heads = first(config, *HEADS)
    if pair := next((value for part in parts if (value := first(part, "kv_lora_rank"))), 0):
        one = next(part for part in parts if first(part, "kv_lora_rank"))
        plain, rotary = first(one, "qk_nope_head_dim"), first(one, "qk_rope_head_dim")
        latent = first(one, "q_lora_rank"), pair, plain, rotary, first(one, "v_head_dim")
        return {"heads": heads, "kv_heads": heads, "head_width": hidden // heads, "latent": latent}
    width = next((value for part in parts if (value := first(part, *HEAD_WIDTH))), 0)
    width = width or first(config, *HEAD_WIDTH) or hidden // max(1, heads)
    if not heads or not width:
        raise NoForm(f"{place} has no number of heads")
    if keys := projection(module, KEYS):
        pairs = out_features(keys) // width
        if outward := projection(module, OUT):
            heads, width = _wide(module, outward.weight.numel() // out_features(outward), width)
    else:
        fused = whole / (2 * hidden * width) - heads
        pairs = int(fused) if fused.is_integer() and fused >= 1 else first(config, "num_key_value_heads") or heads
    if not heads or not pairs:
        raise NoForm(f"{place} has projections of other widths than its heads of {width}")
    normed = any("norm" in type(part).__name__.lower() for part in parts)
    return {"heads": heads, "kv_heads": pairs, "head_width": width, "normed": normed}


def _wide(module: Any, values: int, width: int) -> tuple[int, int]:
    """The heads of queries that are ``width`` wide, and of ``values`` in all; and their width. If both widths differ,
    it is the mean, with which projections have as many elements. No heads if it is no whole number.
    """
    queries = projection(module, QUERIES)
    wide = out_features(queries) if queries else values
    if wide in (values, 2 * values):  # queries may come with a gate
        return values // width, width
    heads = wide // width
    mean, rest = divmod(wide + values, 2 * heads) if heads else (0, 1)
    return (0 if rest else heads), mean


def projection(module: Any, names: tuple[str, ...]) -> Any:
    """The submodule with a weight whose last name is one of these; None without one."""
    for path, one in module.named_modules():
        if path.rpartition(".")[2] in names and getattr(one, "weight", None) is not None and one.weight.dim() == 2:
            return one
    return None


def out_features(module: Any) -> int:
    """The columns that a projection writes. transformers' Conv1D has its weight the other way round."""
    shape = module.weight.shape
    return int(shape[1] if type(module).__name__ == "Conv1D" else shape[0])


def window(number: int, module: Any, config: Any) -> int:
    """The tokens before each that it attends to; 0: all. Chunks are seen by half on average."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    kind = kinds[number] if kinds else ""
    if kind.startswith("chunked"):
        return int(config.attention_chunk_size) // 2
    if kind == "local":
        return first(config, "window_size")
    if kinds and "sliding" not in kind:
        return 0
    own = next((value for one in module.modules() if (value := first(one, "sliding_window"))), 0)
    return own or (first(config, "sliding_window") if getattr(config, "use_sliding_window", True) else 0)


def is_experts(path: str, module: Any, mixed: set[int]) -> bool:
    """Whether a module is the routed experts of a layer."""
    own = path.rpartition(".")[2]
    named = "shared" not in own and ("Experts" in type(module).__name__ or own == "experts")
    return named and any(parameter.dim() > 1 and id(parameter) not in mixed for parameter in module.parameters())


def experts(place: str, module: Any, layer: Any, config: Any, hidden: int) -> dict[str, Any]:
    """Their number, those that a token passes, and the width of one."""
    modules = [module, *layer.modules()]
    listed = len(module) if isinstance(module, torch.nn.ModuleList) else 0
    count = listed or next((value for one in [*modules, config] if (value := first(one, *COUNT))), 0)
    chosen = next((value for one in [*modules, config] if (value := first(one, *CHOSEN))), 0)
    if not count or not chosen:
        raise NoForm(f"{place} does not say how many experts a token passes")
    biases = [
        parameter for name, parameter in module.named_parameters() if parameter.dim() == 1 or name.endswith("bias")
    ]
    known = {id(bias) for bias in biases}
    sizes = sorted(parameter.numel() for parameter in module.parameters() if id(parameter) not in known)
    sizes = sizes[::listed] if listed else sizes  # those of one expert
    whole, down = sum(sizes) * (listed or 1), sizes[0] * (listed or 1)
    inner = first(config, "moe_latent_size") or hidden
    matrices, width = whole / down, down / (count * inner)
    if matrices not in (2, 3) or not width.is_integer():
        raise NoForm(f"{place} has experts of {matrices:g} matrices, {width:g} wide, which have no closed form")
    idle = (whole + elements(biases)) * (count - chosen) // count
    numbers = {"experts": count, "chosen": chosen, "expert_width": int(width), "gated": matrices == 3}
    numbers["expert_hidden"] = inner if inner != hidden else 0
    groups = next((value for one in [*modules, config] if (value := first(one, "n_group"))), 1)
    numbers["nodes"] = next((value for one in modules if groups > 1 and (value := first(one, "topk_group"))), 0)
    return numbers | {"routed": whole, "biases": elements(biases), "idle": idle, "biased": bool(biases)}


def feed_forward(named: list[tuple[str, Any]], hidden: int) -> list[int]:
    """The inner widths of matrices that lead to a feed-forward and back, of the module that has most of them; nothing
    if none has two. The other matrices of a layer of experts are a router and gates.
    """
    groups: dict[str, list[int]] = {"": []}
    for name, one in named:
        if one.dim() == 2 and hidden in one.shape and 1 not in one.shape:
            groups.setdefault(name.rpartition(".")[0], []).append(one.numel() // hidden)
    return max((widths for widths in groups.values() if len(widths) > 1), key=sum, default=[])


def elements(parameters: Any) -> int:
    """Elements of the parameters."""
    return sum(parameter.numel() for parameter in parameters)


def first(thing: Any, *names: str) -> int:
    """The first number of a module or a config by these names; 0 without one."""
    for name in names:
        value = getattr(thing, name, None)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
