"""Documents of a step, if rows are packed, and the proof that none of them sees another.

After all steps, the first documents of all rows get other tokens. The mean loss of the labels in the others must stay
as it was, to the last bit. The proof must be able to fail: other tokens in the last documents must change it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from perfsuite.catalog.definitions import Metric
from perfsuite.errors import WrongEngine
from perfsuite.rank.batches import MicroBatch, make_batch
from perfsuite.rank.meter import Meter
from perfsuite.rank.tasks import IGNORED
from perfsuite.records.sample import Reading
from perfsuite.system.units import WHOLE

if TYPE_CHECKING:
    import torch


class Documents(Meter):
    """Evaluates a batch three times, by the engine itself. Its ranks do so together."""

    processes = ("training",)

    def readings(self) -> dict[str, Reading]:
        if not self.session.recipe.packed:
            return {}
        self.session.mark("evaluation")
        batch = make_batch(self.session, 0)
        documents = [_documents(part.named["position_ids"]) for part in batch]
        if not self.session.emulated:  # most kernels compute nothing there, so no loss depends on a token
            self._prove(batch)
        count = sum(int(numbers[:, -1].sum()) + len(numbers) for numbers in documents)
        return {"documents": Reading(value=count if self.session.leads_replica else 0)}

    def _prove(self, batch: list[MicroBatch]) -> None:
        before = self._loss_beyond_first(batch, None)
        if before != self._loss_beyond_first(batch, "first"):
            raise WrongEngine("packed: a document's loss changes with the tokens of another, so they see each other.")
        if before == self._loss_beyond_first(batch, "last"):
            raise WrongEngine("packed: a document's loss does not change with its own tokens, so nothing is proven.")

    def _loss_beyond_first(self, batch: list[MicroBatch], changed: str | None) -> float:
        """The loss without the labels of each row's first document, after a change of a document's tokens."""
        parts = [dataclasses.replace(part, weight=1.0, inputs=self._changed(part.named, changed)) for part in batch]
        return float(self.trainer.evaluate(parts))

    def _changed(self, inputs: dict[str, Any], changed: str | None) -> dict[str, Any]:
        numbers = _documents(inputs["position_ids"])
        chosen = numbers == (0 if changed == "first" else numbers[:, -1:]) if changed else numbers < 0
        model = self.session.job.model
        others = (inputs["input_ids"] + 1).clamp(model.first_token, model.vocabulary - 1)
        return {
            **inputs,
            "input_ids": others.where(chosen, inputs["input_ids"]),
            "labels": inputs["labels"].masked_fill(numbers == 0, IGNORED),
        }


def _documents(positions: torch.Tensor) -> torch.Tensor:
    """The number of each token's document in its row, from 0."""
    return (positions == 0).cumsum(1) - 1


METER = Documents
METRICS = (Metric("documents", "documents/step", WHOLE, fold="sum", hold="exact", worse="different", optional=True),)
