"""Models of other kinds than text, as a user writes them: only ranks import this file."""

import itertools
from dataclasses import dataclass

import numpy
import torch
from torch import nn
from torch.nn import functional


def generators(seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


class Vit(nn.Module):
    """Images, as a tuple with their labels."""

    _no_split_modules = ("TransformerEncoderLayer",)

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True) for _ in range(2))
        self.head = nn.Linear(16, 10)

    def forward(self, images):
        hidden = self.patches(images).flatten(2).transpose(1, 2)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden.mean(1))


def vit(definition):
    return Vit()


def images(definition, seeds):
    pictures = [torch.randn(3, 16, 16, generator=one) for one in generators(seeds)]
    return torch.stack(pictures), torch.tensor([seed % 10 for seed in seeds])


def classified(model, inputs):
    pictures, labels = inputs
    return functional.cross_entropy(model(pictures), labels)


def unlabeled(definition, seeds):
    return images(definition, seeds)[0]


class Speech(nn.Module):
    """Audio of different lengths and its text, by CTC, over a spectrum."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(17, 16, 3, padding=1)
        self.head = nn.Linear(16, 12)

    def forward(self, waves):
        spectrum = torch.fft.rfft(waves.unflatten(1, (-1, 32))).abs()
        hidden = self.conv(spectrum.transpose(1, 2)).relu()
        return self.head(hidden.transpose(1, 2)).float().log_softmax(-1)


def speech(definition):
    return Speech()


def audio(definition, seeds):
    """Arrays of numpy, as audio libraries give them."""
    draws = [numpy.random.default_rng(seed) for seed in seeds]
    return {
        "waves": numpy.stack([draw.standard_normal(32 * 20, dtype=numpy.float32) for draw in draws]),
        "frames": numpy.array([draw.integers(12, 21) for draw in draws]),
        "text": numpy.stack([draw.integers(1, 12, 5) for draw in draws]),
        "characters": numpy.array([draw.integers(2, 6) for draw in draws]),
    }


def ctc(model, inputs):
    logits = model(inputs["waves"]).transpose(0, 1)
    return functional.ctc_loss(logits, inputs["text"], inputs["frames"], inputs["characters"])


@dataclass
class Packed:
    """Sequences one after the other, without padding; ``ends`` begins with 0."""

    ids: torch.Tensor
    ends: torch.Tensor


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.qkv = nn.Linear(16, 48)
        self.head = nn.Linear(16, 64)

    def forward(self, packed):
        hidden, parts = self.embed(packed.ids), []
        for begin, end in itertools.pairwise(packed.ends.tolist()):
            query, key, value = self.qkv(hidden[begin:end]).view(-1, 3, 2, 8).permute(1, 2, 0, 3)
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            parts.append(attended.transpose(0, 1).flatten(1))
        return self.head(hidden + torch.cat(parts))


def decoder(definition):
    return Decoder()


def packed(definition, seeds):
    lengths = [4 + seed % 29 for seed in seeds]
    ids = [torch.randint(64, (length,), generator=one) for length, one in zip(lengths, generators(seeds), strict=True)]
    return Packed(torch.cat(ids), torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32))


def tokens(inputs):
    return len(inputs.ids)


def copied(model, inputs):
    return functional.cross_entropy(model(inputs), inputs.ids)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.text = nn.EmbeddingBag(32, 8)

    def forward(self, image, text):
        return self.image(image["pixels"]), self.text(text["ids"])


def towers(definition):
    return Towers()


def pairs(definition, seeds):
    made = generators(seeds)
    pixels = torch.stack([torch.randn(3, 8, 8, generator=one) for one in made])
    return {
        "image": {"pixels": pixels},
        "text": {"ids": torch.stack([torch.randint(32, (6,), generator=one) for one in made])},
    }


def contrastive(model, inputs):
    image, text = model(**inputs)
    return functional.cross_entropy(image @ text.T, torch.arange(len(image), device=image.device))


def raises(*_):
    raise ValueError("no such checkpoint")


def nothing(*_):
    return None


def words(definition, seeds):
    return {"labels": ["cat"] * len(seeds)}


def many(model, inputs):
    return functional.cross_entropy(model(inputs[0]), inputs[1], reduction="none")


def frozen(model, inputs):
    return classified(model, inputs).detach()


def not_finite(model, inputs):
    return classified(model, inputs) * float("nan")


def number(model, inputs):
    return float(classified(model, inputs))
