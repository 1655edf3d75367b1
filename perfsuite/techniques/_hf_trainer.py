"""transformers' Trainer: its own train() runs, in a greenlet that waits for the rank's next batch.

A thread would not work: torch's dispatch modes, which meters use, watch one thread.
"""

from __future__ import annotations

import contextvars
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perfsuite.errors import RankError, WrongEngine
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.plain_loop import Loop
from perfsuite.rank.releases import refused
from perfsuite.rank.trainer import StepOutcome
from perfsuite.techniques._accelerate import as_launched, prove

if TYPE_CHECKING:
    import torch

ENDLESS = 2**31  # steps; the rank stops asking for them


class HfTrained(Loop):
    """The Trainer chooses the wrapper, and the engine's ``check`` proves which."""

    def prepare(self, model: torch.nn.Module) -> tuple[torch.nn.Module, Any]:
        import greenlet

        self.given: list[MicroBatch] = []
        self.loss_sum: Any = None
        self.norm: Any = None
        with refused("hf_trainer", "transformers"):
            self.hf = self.make_trainer(model)
        self.training = greenlet.greenlet(self.hf.train)
        self.training.gr_context = contextvars.copy_context()
        self.resume()  # up to the first batch: the Trainer wraps the model in train()
        return self.hf.model_wrapped, self.hf.optimizer

    def resume(self) -> None:
        """Let train() run until it asks for a batch. Raises RankError if it returns instead."""
        self.training.switch()
        if self.training.dead:
            raise RankError(f"transformers' Trainer stopped by itself after {self.hf.state.global_step} steps.")

    def micro_batches(self) -> Iterator[dict[str, Any]]:
        """The source of train()'s micro-batches; between two optimizer steps the rank continues."""
        while True:
            self.training.parent.switch()
            yield from ({**micro_batch.inputs, "weight": micro_batch.weight} for micro_batch in self.given)

    def check(self) -> dict[str, str | int]:
        import transformers

        train = self.hf.train.__func__
        if train is not transformers.Trainer.train:
            raise WrongEngine(
                f"transformers.Trainer.train must run, but this is {train.__module__}.{train.__qualname__}."
            )
        evidence: dict[str, str | int] = {"loop": f"{train.__module__}.{transformers.Trainer.__name__}"}
        return evidence | prove(self.session, self.hf.accelerator)

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        import torch

        self.given, self.norm = batch, None  # a step without a norm must not report the last one's
        self.loss_sum = torch.zeros((), device=self.session.device)
        self.resume()
        self.given = []
        return StepOutcome(self.loss_sum, self.norm, self.hf.accelerator.optimizer_step_was_skipped)

    def before_optimizer(self, *_: Any) -> None:
        """Compute the norm where the Trainer does not: transformers 4 has none unless it clips. fp16's gradients are
        unscaled by now.
        """
        if self.norm is None:
            self.session.mark("optimizer")
            if self.engine.reads_norm:
                self.norm = self.engine.gradient_norm()

    def make_trainer(self, model: torch.nn.Module) -> Any:
        """A Trainer with the recipe's arguments that saves and logs nothing."""
        import transformers

        loop, session, recipe = self, self.session, self.session.recipe

        class Asking(transformers.Trainer):  # type: ignore[misc]
            loss_is_scaled_for_ga = False  # the Trainer divides by the number of micro-batches

            def get_train_dataloader(self) -> Any:
                return loop.micro_batches()

            def training_step(self, *arguments: Any) -> Any:
                with recipe.around():
                    return super().training_step(*arguments)

            def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
                weight = inputs.pop("weight")
                session.mark("forward")
                loss = model(**inputs).loss * weight
                loop.loss_sum += loss.detach() / len(loop.given)
                session.mark("backward")
                return loss

        class Marking(transformers.TrainerCallback):  # type: ignore[misc]
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
            trainer = Asking(model, arguments, optimizers=(optimizer, None), callbacks=[Marking()])
        if not hasattr(transformers.Trainer, "loss_is_scaled_for_ga"):
            trainer.model_accepts_loss_kwargs = False  # by which older releases know that compute_loss does not scale
        optimizer.register_step_pre_hook(self.before_optimizer)
        norm_of = trainer.accelerator.clip_grad_norm_

        def clip_grad_norm_(*parameters: Any) -> Any:
            """The Trainer keeps the norm for its log, which is off: so it is recorded when Accelerate computes it."""
            session.mark("optimizer")
            self.norm = norm_of(*parameters)
            return self.norm

        trainer.accelerator.clip_grad_norm_ = clip_grad_norm_
        return trainer
