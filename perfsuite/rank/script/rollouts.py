"""Rollouts: what a training loop generates, and then learns from.

    rollout     transformers' generate(), or what a trainer of trl generates with
    reward      a trainer of trl calls its reward functions
    advantage   what else that trainer does before it trains

These are phases of a step that nobody has to name; one that the script names itself counts first. The log-probability
of a sampled token, given the same text before it, must be the same in the rollout and where a trainer of trl computes
it for its loss. It is compared in one step, in which generate() keeps its logits.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from perfsuite.rank.script.watched import Watched, replace
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.records.suspects import ADVANTAGE, REWARD, ROLLOUT

METHODS = {  # of trl's trainers
    "_generate_and_score_completions": ADVANTAGE,
    "_generate": ROLLOUT,
    "_calculate_rewards": REWARD,
}
LOG_PROBABILITIES = ("_get_per_token_logps_and_entropies", "_get_per_token_logps")  # the older name comes last
Stage = Callable[[str], AbstractContextManager[None]]


class Rollouts:
    """Of this process. ``tokens`` are those of the step that is made, of all its rows. While it is ``compared``, each
    of the ``gaps`` is between a row's log-probabilities in training and in the rollout: the largest, in nats. Of all
    ``rows`` that are trained on, some may not have been sampled in the same step.
    ``stage`` makes a phase of what is inside. ``dropout`` is whether some of the training's forwards had it, which
    makes any two of them differ, and ``half`` whether any was computed in less than fp32.
    """

    def __init__(self, watched: Watched, stage: Stage) -> None:
        self.compared, self.dropout, self.half, self.tokens = False, False, False, 0
        self.rows = 0
        self.gaps: list[float] = []
        self.sampled: dict[tuple[int, ...], Tensor] = {}  # log-probabilities of new tokens, by the whole text
        self.stage = stage
        self._watched = watched

    @property
    def autocast(self) -> bool:
        """Whether the script has it anywhere."""
        return bool(self._watched.autocast)

    def generated(self, generate: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        """Call transformers' ``generate``, as a phase."""
        if not self._watched.is_here:
            return generate(model, *args, **kwargs)
        given = inspect.signature(generate).bind(model, *args, **kwargs).arguments
        more = given.get("kwargs", {})
        keeps = self.compared and not {"return_dict_in_generate", "output_logits"} & more.keys()
        asked = {"return_dict_in_generate": True, "output_logits": True} if keeps else {}
        with self.stage(ROLLOUT):
            output = generate(model, *args, **kwargs, **asked)
            if keeps and hasattr(output, "sequences"):
                self._keep(output, given.get("generation_config") or model.generation_config)
                output = output.sequences
        self._watched.note("R")
        texts = getattr(output, "sequences", output)
        if getattr(model.config, "is_encoder_decoder", False):
            prompt = 1  # the token with which a decoder begins
        else:
            prompts = given.get("inputs", more.get("input_ids"))
            prompt = prompts.shape[1] if prompts is not None else "inputs_embeds" not in more
        self.tokens += texts.shape[0] * (texts.shape[1] - prompt)
        return output

    def _keep(self, output: Any, config: Any) -> None:
        """The log-probabilities of what was sampled. Beams change places, so theirs are not known."""
        import torch

        texts, logits = output.sequences, list(getattr(output, "logits", None) or [])
        count = len(logits)
        if not count or logits[0].shape[0] != texts.shape[0]:
            return
        temperature = config.temperature if config.do_sample and config.temperature else 1.0
        scores = torch.stack([torch.log_softmax(logit.float() / temperature, -1) for logit in logits], 1)
        new = scores.gather(-1, texts[:, -count:, None]).squeeze(-1)
        self.sampled |= dict(zip(map(tuple, texts.tolist()), new.cpu(), strict=True))

    @contextlib.contextmanager
    def comparing(self) -> Iterator[None]:
        """Compare what is generated inside with what is computed from it."""
        self.compared = True
        try:
            yield
        finally:
            self.compared = False
            self.sampled.clear()

    def trained(self, texts: Tensor, mask: Tensor, values: Tensor) -> None:
        """What a trainer computes for its loss: log-probabilities of the last tokens of each text, in nats. Those of
        tokens that ``mask`` leaves out mean nothing.
        """
        count = values.shape[1]
        self.rows += len(texts)
        for text, used, row in zip(texts.tolist(), mask[:, -count:].bool().cpu(), values.detach().cpu(), strict=True):
            known = self.sampled.get(tuple(text))
            if known is not None and len(known) == count and bool(used.any()):
                self.gaps.append(float((known - row.float())[used].abs().max()))


def watch_generation(utils: Any, rollouts: Rollouts) -> None:
    """Put the hook into transformers' module."""

    def make(generate: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *args, **kwargs: rollouts.generated(generate, self, *args, **kwargs)

    replace(utils.GenerationMixin, "generate", make)


def watch_trl(trainers: Any, rollouts: Rollouts) -> None:
    """Put the hooks into the trainers that a module of trl defines."""
    for kind in _defined(trainers):
        for name, phase in METHODS.items():
            if name in vars(kind):
                replace(kind, name, functools.partial(_as_stage, rollouts.stage, phase))
        for name in LOG_PROBABILITIES:
            if name in vars(kind):
                replace(kind, name, functools.partial(_compared, rollouts))


def _defined(module: Any) -> Iterable[type]:
    return [value for value in vars(module).values() if inspect.isclass(value) and value.__module__ == module.__name__]


def _as_stage(stage: Stage, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def running(*args: Any, **kwargs: Any) -> Any:
        with stage(name):
            return method(*args, **kwargs)

    return running


def _compared(rollouts: Rollouts, method: Callable[..., Any]) -> Callable[..., Any]:
    def computing(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        given = inspect.signature(method).bind(*args, **kwargs).arguments if rollouts.compared else {}
        if {"model", "input_ids", "attention_mask"} <= given.keys():
            values = result[0] if isinstance(result, tuple) else result
            rollouts.dropout |= any(map(_drops, given["model"].modules()))
            rollouts.half |= rollouts.autocast or any(
                parameter.element_size() < 4 for parameter in given["model"].parameters()
            )
            rollouts.trained(given["input_ids"], given["attention_mask"], values)
        return result

    return computing


def _drops(module: Module) -> bool:
    """Whether it sets some of its numbers to zero."""
    return "Dropout" in type(module).__name__ and module.training and bool(getattr(module, "p", 0.0))
