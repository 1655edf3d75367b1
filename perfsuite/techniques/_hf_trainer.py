"""transformers' Trainer: its own train() runs, in a greenlet that waits for the rank's next step.

A thread would not work: torch's dispatch modes, which meters use, watch one thread.
"""

import contextvars
import itertools
import tempfile
from collections.abc import Iterator
from typing import Any

from perfsuite.errors import RankError, WrongEngine
from perfsuite.rank.batches import MicroBatch, definition_of, seeds_of
from perfsuite.rank.plain_loop import Loop
from perfsuite.rank.releases import refused
from perfsuite.rank.session import Session
from perfsuite.rank.tasks import IGNORED, Sample, make_sample
from perfsuite.rank.torch_types import Module
from perfsuite.rank.trainer import StepOutcome
from perfsuite.techniques._accelerate import as_launched, prove

ENDLESS = 2**31  # steps; the rank stops asking for them
OWN = ("train", "get_train_dataloader", "compute_loss", "get_batch_samples")  # the last is not in every release


class HfTrained(Loop):
    """The Trainer chooses the wrapper, and the engine's ``check`` proves which. It draws its own batches, from the
    samples that ``rank/batches.py`` makes. A step ends when the next one begins, so it has fetched the next batch.
    """

    def prepare(self, model: Module) -> tuple[Module, Any]:
        import greenlet

        self.loss_sum: Any = None
        self.norm: Any = None
        with refused("hf_trainer", "transformers"):
            self.hf = self.make_trainer(model)
            self.training = greenlet.greenlet(self.hf.train)
            self.training.gr_context = contextvars.copy_context()
            self.resume()  # up to the first step: the Trainer wraps the model in train()
        module = self.hf.model_wrapped
        module.register_forward_pre_hook(self.before_forward)
        module.register_forward_hook(self.after_forward)
        return module, self.hf.optimizer

    def resume(self) -> None:
        """Let train() run until the next step begins. Raises RankError if it returns instead."""
        self.training.switch()
        if self.training.dead:
            raise RankError(f"transformers' Trainer stopped by itself after {self.hf.state.global_step} steps.")

    def batch(self, step: int) -> list[MicroBatch]:
        """The Trainer has its own data loader."""
        return []

    def before_forward(self, module: Module, *_: Any) -> None:
        if module.training:
            self.session.mark("forward")

    def after_forward(self, module: Module, _: Any, output: Any) -> None:
        if not isinstance(output, dict | tuple):
            raise RankError(
                f"transformers' Trainer reads the loss from a dictionary or tuple, but {type(module).__name__} returns "
                f"{type(output).__name__}: return a transformers.utils.ModelOutput."
            )
        if module.training:
            self.session.mark("backward")

    def check(self) -> dict[str, str | int]:
        import transformers

        for name in OWN:
            own = getattr(transformers.Trainer, name, None)
            used = getattr(type(self.hf), name, None)
            if used is not own:
                raise WrongEngine(f"transformers.Trainer.{name} must run, but this is {used.__module__}.{name}.")
        train = self.hf.train.__func__
        evidence: dict[str, str | int] = {"loop": f"{train.__module__}.{transformers.Trainer.__name__}"}
        return evidence | prove(self.session, self.hf.accelerator)

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        import torch

        self.norm = None  # a step without a norm must not report the last one's
        self.loss_sum = torch.zeros((), device=self.session.device)
        self.resume()
        return StepOutcome(self.loss_sum, self.norm, self.hf.accelerator.optimizer_step_was_skipped)

    def before_optimizer(self, *_: Any) -> None:
        """Compute the norm where the Trainer does not: transformers 4 has none unless it clips. fp16's gradients are
        unscaled by now.
        """
        if self.norm is None:
            self.session.mark("optimizer")
            if self.engine.reads_norm:
                self.norm = self.engine.gradient_norm()

    def make_trainer(self, model: Module) -> Any:
        """A Trainer with the recipe's arguments that saves and logs nothing."""
        import transformers

        loop, session, recipe = self, self.session, self.session.recipe

        class WatchedTrainer(transformers.Trainer):  # type: ignore[misc]
            def training_step(self, *arguments: Any, **named: Any) -> Any:
                with recipe.around():
                    loss = super().training_step(*arguments, **named)
                loop.loss_sum += loss  # as the Trainer sums it for its log
                return loss

        class Pausing(transformers.TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                loop.training.parent.switch()

            def on_optimizer_step(self, *_: Any, **__: Any) -> None:
                session.mark("end")

        stated: dict[str, Any] = {"max_grad_norm": recipe.clip} if recipe.clip else {}
        if recipe.stated:
            learning_rate = {"learning_rate": recipe.learning_rate, "lr_scheduler_type": "constant"}
            stated = {"max_grad_norm": recipe.clip or 0.0, **learning_rate}
        # The Trainer makes its folder at once, and never writes into it.
        with as_launched(session), tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                **stated,
                output_dir=folder,
                max_steps=ENDLESS,
                per_device_train_batch_size=session.job.workload.micro_batch,
                gradient_accumulation_steps=recipe.accumulation,
                accelerator_config={"dispatch_batches": False},  # each rank reads its own share
                bf16=recipe.compute_dtype == "bfloat16" and not recipe.pure,
                fp16=recipe.compute_dtype == "float16" and not recipe.pure,
                use_cpu=session.job.device == "cpu",
                seed=session.job.seed,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
            )
            arguments._n_gpu = min(arguments.n_gpu, 1)  # a lone rank is one device, although it may see others
            optimizer = self.engine.make_optimizer(model)
            trainer = WatchedTrainer(
                model,
                arguments,
                train_dataset=samples_of(session),
                optimizers=(optimizer, recipe.schedule(optimizer) if recipe.schedule else None),
                callbacks=[Pausing()],
            )
        optimizer.register_step_pre_hook(self.before_optimizer)
        norm_of = trainer.accelerator.clip_grad_norm_

        def clip_grad_norm_(*parameters: Any) -> Any:
            """The Trainer keeps the norm for its log, which is off: so it is recorded when Accelerate computes it."""
            session.mark("optimizer")
            self.norm = norm_of(*parameters)
            return self.norm

        trainer.accelerator.clip_grad_norm_ = clip_grad_norm_
        return trainer


def samples_of(session: Session) -> Any:
    """All ranks' samples, step after step, as a dataset without an end. Accelerate gives each rank its share."""
    from torch.utils.data import IterableDataset

    model = definition_of(session)

    class SampleStream(IterableDataset[Sample]):
        def __iter__(self) -> Iterator[Sample]:
            for seed in itertools.chain.from_iterable(seeds_of(session, step) for step in itertools.count()):
                sample = make_sample(model, seed, session.recipe.padded)
                if model.task == "causal_lm":  # no model predicts the first token, but some releases count it
                    sample["labels"][0] = IGNORED
                yield {name: values.tolist() for name, values in sample.items()}

    return SampleStream()
