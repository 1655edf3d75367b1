"""Models that copy their layers, as torch.nn.TransformerEncoder does, are counted like any other."""

import contextlib
import sys
from pathlib import Path

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.run.runner import Runner, Settings

MODEL = """\
from types import SimpleNamespace

import torch


class Net(torch.nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, 16)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(16, vocabulary, bias=False)

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.head(self.layers(self.embed(input_ids)))
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return SimpleNamespace(loss=loss, logits=logits)


def build(definition):
    return Net(definition.vocabulary)
"""


def test_a_transformer_encoder_trains_and_is_counted(tmp_path: Path) -> None:
    """ "Mixing fake modes NYI" failed the cell. Forward and backward of the products: 3 · 2 · weights · tokens."""
    (tmp_path / "encoder_of_mine.py").write_text(MODEL)
    model = Model(
        name="encoder",
        family="mine",
        task="causal_lm",
        source="a test",
        parameters=2 * (4 * 16 * 17 + 2 * 16 * 32 + 112) + 2 * 64 * 16,
        vocabulary=64,
        workload=Workload(micro_batch=2, sequence_length=8),
        build="encoder_of_mine:build",
    )
    catalog = Catalog(extra_models=(model,))
    settings = Settings(steps=2, warmup=1, import_path=(str(tmp_path), *sys.path))
    with contextlib.closing(Runner(catalog, settings)) as runner:
        measured = runner.measure(parse_cell("encoder-single-cpu_x1", catalog))

    assert measured.outcome == "fits", measured.failure
    weights = 2 * (4 * 16 * 16 + 2 * 16 * 32) + 64 * 16
    # Two layers, 8 positions of width 16: scores and values, twice that backward, and the scores once more there.
    attention = 2 * 7 * (2 * 8 * 16)
    assert measured.readings["model_flop"].value == 16 * (6 * weights + attention)
