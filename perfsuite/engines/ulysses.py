"""Ulysses: the ranks share each sequence; attention exchanges tokens for heads by all-to-all, and back.

Each rank has 1/n of the tokens of every micro-batch, and all parameters. Before attention an all-to-all brings it all
tokens of 1/n of the heads, and after it another one brings back its own tokens with all heads. DeepSpeed's
``UlyssesSPAttentionHF`` exchanges, and transformers' sdpa attends in it. A label is that of the next token, which may
be another rank's, so labels are shifted before they are divided. The loss of a part is its sum divided by the labels of
the whole micro-batch: parts have different numbers of labels, and padding may leave one without any.

``UlyssesSPAttentionHF.register_with_transformers`` is not called, for two reasons (DeepSpeed 0.19.8). It works once in
a process, since it asserts that there are no groups yet, but the update is compared with a second trainer. And it drops
every mask: a window then sees all tokens before it, and packed documents see each other. Here the mask is made of the
whole sequence.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any, cast

from perfsuite.catalog.definitions import Engine, Model, Proposal
from perfsuite.engines._deepspeed import import_once
from perfsuite.errors import WrongEngine
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.blocks import size
from perfsuite.rank.native import LoopTrainer
from perfsuite.rank.releases import lacks
from perfsuite.rank.replicas import average_gradients
from perfsuite.rank.tasks import IGNORED
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.system.units import fitting
from perfsuite.techniques import attention, offload

NAME = "ulysses"  # of its attention among transformers'
FAMILIES = ("gemma3", "gpt2", "llama", "mistral", "qwen3")
INTEGER = 8  # bytes of a position


class WholeSequences:
    """transformers' sdpa on all tokens, with the mask that the model would make of them: a window's, or of documents.

    The model itself makes none, since transformers knows no masks for an attention of this name. A mask is made once
    in a forward, for all layers of its kind.
    """

    def __init__(self, config: Any, packed: bool) -> None:
        from transformers import masking_utils
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        self.attend = ALL_ATTENTION_FUNCTIONS["sdpa"]
        self.config = copy.deepcopy(config)  # which says for what attention a mask is
        self.packed = packed
        self.make = (masking_utils.create_causal_mask, masking_utils.create_sliding_window_causal_mask)
        self.masks: dict[bool, Any] = {}
        self.seen: set[tuple[int, int]] = set()  # numbers of heads and of tokens

    def __call__(self, module: Module, query: Tensor, key: Tensor, value: Tensor, _: Any, **more: Any) -> Any:
        self.seen.add((query.shape[1], query.shape[2]))
        window = more.get("sliding_window") is not None
        if (window or self.packed) and window not in self.masks:
            self.masks[window] = self.mask(window, query, more["position_ids"])
        return self.attend(module, query, key, value, self.masks.get(window), **more)

    def mask(self, window: bool, query: Tensor, positions: Tensor) -> Any:
        """The mask of all pairs of tokens; None if sdpa's own causal one is enough. Of the query, only shape and dtype
        are asked.
        """
        documents = positions if self.packed else None
        return self.make[window](self.config, query[:, 0], None, None, position_ids=documents)

    def forget(self, *_: Any) -> None:
        """The masks are of a forward that is done."""
        self.masks.clear()


class Ulysses(LoopTrainer):
    """The plain loop on parts of sequences."""

    def wrap(self, model: Module) -> Module:
        session, ranks = self.session, self.session.layout.context
        import deepspeed
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        try:
            from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
        except ImportError as error:
            raise lacks(NAME, "deepspeed", "deepspeed.runtime.sequence_parallel.ulysses_sp") from error
        deepspeed.init_distributed(dist_init_required=False)
        hf: Any = model
        config, workload = hf.config, session.job.workload
        heads, self.key_heads = heads_of(session.job.model)
        self.heads = heads
        self.head_size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.tokens = workload.sequence_length // ranks
        self.group = session.mesh["context"]
        self.whole = WholeSequences(config, session.recipe.packed)
        self.exchange = UlyssesSPAttentionHF(
            self.whole,
            batch_size=workload.micro_batch,
            attn_head_count=self.heads,
            attn_head_size=self.head_size,
            kv_head_count=self.key_heads,
            num_hidden_layers=config.num_hidden_layers,
            process_group=self.group.get_group(),
            local_seq_length=self.tokens,
            global_seq_length=workload.sequence_length,
        )
        # DeepSpeed joins the heads that it returns, but GPT-2 expects them apart, as from transformers' attentions.
        self.exchange.register_forward_hook(lambda _, __, out: (out[0].unflatten(2, (heads, -1)), out[1]))
        ALL_ATTENTION_FUNCTIONS[NAME] = self.exchange
        attention.choose(session, model, implementation=NAME)
        hf.register_forward_pre_hook(self.whole.forget)
        return model

    def batch(self, step: int) -> list[MicroBatch]:
        return [self.part(one) for one in super().batch(step)]

    def part(self, whole: MicroBatch) -> MicroBatch:
        """This rank's tokens of a micro-batch. Padding is at the end, where no label sees it, so its mask is left out.

        The mean over all ranks is the loss, so the weight of a part is that of the whole times the ranks.
        """
        import torch

        ids, labels = whole.named["input_ids"], whole.named["labels"]
        positions = whole.named.get("position_ids", torch.arange(ids.shape[1], device=ids.device).expand_as(ids))
        following = torch.nn.functional.pad(labels, (0, 1), value=IGNORED)[:, 1:]
        rows = {"input_ids": ids, "position_ids": positions, "labels": labels, "shift_labels": following}
        begin = self.group.get_local_rank() * self.tokens
        inputs = {name: row[:, begin : begin + self.tokens].contiguous() for name, row in rows.items()}
        inputs["num_items_in_batch"] = (following != IGNORED).sum()
        return dataclasses.replace(whole, inputs=inputs, weight=whole.weight * self.group.size())

    def reduce_gradients(self) -> None:
        self.whole.forget()
        average_gradients(self.gradients(), None)

    def evaluate(self, batch: list[MicroBatch]) -> Any:
        """The loss of whole sequences, on each of their ranks."""
        import torch.distributed as dist

        loss = super().evaluate([self.part(one) for one in batch])
        self.whole.forget()
        dist.all_reduce(loss, group=self.group.get_group())
        return loss / self.group.size()

    def check(self) -> dict[str, str | int]:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        layout, hf = self.session.layout, cast("Any", self.model)
        chosen = hf.config._attn_implementation
        if chosen != NAME or ALL_ATTENTION_FUNCTIONS[NAME] is not self.exchange:
            raise WrongEngine(f"ulysses must attend through UlyssesSPAttentionHF, but the model attends by {chosen!r}.")
        if self.exchange.world_size != layout.context:
            raise WrongEngine(
                f"ulysses must exchange over {layout.context} ranks, but its group has {self.exchange.world_size}."
            )
        heads, tokens = self.heads // layout.context, self.tokens * layout.context
        for seen in self.whole.seen - {(heads, tokens)}:
            raise WrongEngine(
                f"A rank must attend with {heads} of {self.heads} heads to {tokens} tokens, but does with {seen[0]} to "
                f"{seen[1]}."
            )
        first = self.group.get_local_rank() * self.tokens
        return self.evidence(
            attention=type(self.exchange).__name__,
            ranks=layout.context,
            heads=f"{heads} of {self.heads}",
            tokens=f"{first} to {first + self.tokens - 1} of {tokens}",
            replicas=layout.replicas,
        )

    def traffic(self) -> dict[str, int] | None:
        """Queries, keys, values and what attention returns, of a rank's own tokens, in each layer's forward and again
        in its backward (arXiv 2309.14509, section 3.2), the positions of all tokens in each forward, and all gradients.
        A layer that is computed again sends its forward's messages again. None in low precision: a model's norms and
        rotations decide in what precision queries and keys are.
        """
        session, hf = self.session, cast("Any", self.model)
        if session.recipe.compute_dtype != "float32":
            return None
        keys = max(self.key_heads, session.layout.context)  # those that are fewer than ranks are repeated
        mine = session.job.workload.micro_batch * self.tokens
        forwards = 2 if getattr(hf, "is_gradient_checkpointing", False) else 1
        layers = hf.config.num_hidden_layers * session.recipe.accumulation
        exchanged = 4 * mine * 2 * (self.heads + keys) * self.head_size
        return {
            "all_to_all": layers * (forwards + 1) * exchanged,
            "all_gather": layers * forwards * mine * session.layout.context * INTEGER,
            "all_reduce": size(self.trainable()),
        }

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        return ((parameter, None) for parameter in self.model.parameters())


def heads_of(model: Model) -> tuple[int, int]:
    """The numbers of heads, and of key-value heads."""
    heads = int(model.config.get("num_attention_heads") or model.config["n_head"])
    return heads, int(model.config.get("num_key_value_heads", heads))


def why_not(proposal: Proposal) -> str:
    """Why the model's sequences or heads cannot be divided evenly; empty if they can."""
    model, ranks = proposal.model, proposal.layout.context
    if model.family not in FAMILIES or model.task != "causal_lm":
        return (
            f"{model.name} is none of {', '.join(FAMILIES)}. Its attention must know positions and have heads of one "
            "size, and its loss must be a sum over tokens"
        )
    length, (heads, keys) = model.workload.sequence_length, heads_of(model)
    if length % ranks:
        return f"{model.name}'s {length} tokens are not divisible by {ranks} ranks: {fitting(length)}"
    if heads % ranks:
        return f"{model.name}'s {heads} heads are not divisible by {ranks} ranks: {fitting(heads)}"
    if keys % ranks and ranks % keys:
        return f"{model.name}'s {keys} key-value heads are not divisible by {ranks} ranks, nor these by them"
    return ""


ENGINES = (
    Engine(
        name=NAME,
        saves="torch",
        trainer=Ulysses,
        dimension="context",
        min_ranks=2,
        combines=frozenset({"dp"}),
        packages=("deepspeed",),
        prepare=import_once,
        refuses=offload.refused("each rank keeps all on the device")
        | {"eager": "DeepSpeed's Ulysses refuses it ('eager attn_implementation isn't currently supported')"},
        why_not=why_not,
        source="arXiv 2309.14509; deepspeed/runtime/sequence_parallel/ulysses_sp.py",
    ),
)
