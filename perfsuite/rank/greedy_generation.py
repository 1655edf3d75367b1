"""Greedy generation of a fixed number of tokens with a KV cache, as transformers' ``generate`` does it."""

from typing import Any

from perfsuite.catalog.definitions import Workload
from perfsuite.errors import Unsupported, WrongEngine
from perfsuite.rank.batches import MicroBatch, definition_of, moved, seed_of
from perfsuite.rank.session import Session
from perfsuite.rank.tasks import Sample, make_sample
from perfsuite.rank.torch_types import Tensor


def new_tokens(workload: Workload) -> int:
    """How many tokens a sample gets: a sequence-to-sequence model's ``target_length``, half of a causal model's
    sequence. Prompt and continuation together are then as long as a training sequence, so they fit the model's
    positions.
    """
    return workload.target_length or workload.sequence_length // 2


def prompts(session: Session, step: int) -> list[MicroBatch]:
    """This rank's prompts of a step, padded on the left as ``generate`` needs them, without labels."""
    import numpy

    workload = session.job.workload
    shorter = {} if workload.target_length else {"sequence_length": workload.sequence_length - new_tokens(workload)}
    model, first = definition_of(session, **shorter), session.data_rank * workload.micro_batch
    numbers = range(first, first + workload.micro_batch)
    samples = [pad_left(make_sample(model, seed_of(session.job.seed, step, number))) for number in numbers]
    batch = {name: numpy.stack([sample[name] for sample in samples]) for name in samples[0]}
    return [MicroBatch(moved(session, batch), 1.0, session)]


def pad_left(sample: Sample) -> Sample:
    """The same tokens with the padding before them; a model that continues them reads their last one last."""
    import numpy

    length = int(sample["attention_mask"].sum())
    return {name: numpy.roll(values, -length) for name, values in sample.items() if name != "labels"}


def generate(model: Any, inputs: dict[str, Tensor], count: int) -> Tensor:
    """Continue every prompt by ``count`` tokens; returns the mean negative log-likelihood of the tokens, in nats.

    A greedy token is the most likely one, so its likelihood is computed from the logits, and none are kept. Raises
    WrongEngine if the number of tokens is wrong, or if the cache lacks more than the last one. Raises Unsupported
    without ``generate``, or if the cache does not report its length.
    """
    import torch
    from transformers import LogitsProcessor, LogitsProcessorList

    if not hasattr(model, "generate"):
        raise Unsupported(f"{type(model).__name__} has no generate().")

    class Likelihood(LogitsProcessor):  # type: ignore[misc]
        total = torch.zeros((), device=inputs["input_ids"].device)

        def __call__(self, tokens: Any, logits: Any) -> Any:
            self.total += (torch.logsumexp(logits, -1) - logits.max(-1).values).mean()
            return logits

    likelihood = Likelihood()
    model.generation_config.eos_token_id = None  # otherwise a text may end early, and steps would do different work
    pad = getattr(model.config, "pad_token_id", None)
    output = model.generate(
        **inputs,
        max_new_tokens=count,
        do_sample=False,
        use_cache=True,
        pad_token_id=0 if pad is None else pad,
        logits_processor=LogitsProcessorList([likelihood]),
        return_dict_in_generate=True,
    )
    seen = (
        1 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
    )  # a decoder begins with its start token
    made = output.sequences.shape[1] - seen
    cache = output.past_key_values
    if cache and not hasattr(cache, "get_seq_length"):  # transformers 4 with the older models
        raise Unsupported(
            f"{type(model).__name__} gives its cache as a {type(cache).__name__}, which does not report its length."
        )
    cached = cache.get_seq_length() if cache else 0
    if made != count:
        raise WrongEngine(f"generate must make {count} tokens for each prompt, but it made {made}.")
    if cached != seen + made - 1:
        raise WrongEngine(f"generate's cache must have {seen + made - 1} positions, but it has {cached}.")
    return likelihood.total / count


def without_labels(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of a batch of samples as prompts."""
    return {name: tensor for name, tensor in inputs.items() if name != "labels"}
