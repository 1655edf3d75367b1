"""What transformers builds from a config: its layers by kind, as numbers. The process that builds it imports torch."""

import functools
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.errors import FileError
from perfsuite.features.predict import hub_names
from perfsuite.records import codec
from perfsuite.records.record import Record
from perfsuite.system.machine import version_of
from perfsuite.system.paths import cache_folder, content_hash

SCRIPT = "A script that trains it has a memory: `perfsuite memory --hardware H -- python train.py`."
OF_HUB = Path(__file__).with_name("hub_architectures.json")
MOST_LAYERS = 10_000  # more is a slip of the hand
CODE = [Path(__file__), *(Path(__file__).with_name("trace") / name for name in ("meta_model.py", "meta_layers.py"))]


class LayerKind(Record, frozen=True, kw_only=True):
    """``count`` equal layers, of which ``where`` is the first. ``classes`` are those of its parts with matrices.

    Attention has norms of queries and keys if it is ``normed``, ``heads``, ``kv_heads`` and a ``head_width``; a
    compressed one the numbers of ``latent`` (Latent). Of the layers ``windowed`` attend to ``window`` tokens before
    each alone. ``cross``: another attention reads an encoder. ``state`` are the elements of a recurrence's state. A
    token passes ``feed_forward`` features. They may be of ``experts`` of an ``expert_width``, of which each token
    passes ``chosen`` on at most so many ``nodes`` (0: any), and of a ``shared`` one. Experts read ``expert_hidden``
    features (0: all of the hidden state).

    ``matrices`` are the elements of those that every token passes, ``routed`` of the experts'. ``small`` are norms and
    biases, ``idle`` what of the experts one token does not pass, with biases, which they have if they are ``biased``.
    """

    where: str
    classes: tuple[str, ...]
    count: int = 1
    encoder: bool = False
    heads: int = 0
    kv_heads: int = 0
    head_width: int = 0
    latent: tuple[int, int, int, int, int] | None = None
    window: int = 0
    windowed: int = 0
    normed: bool = False
    cross: bool = False
    state: int = 0
    feed_forward: int = 0
    gated: bool = False
    experts: int = 0
    chosen: int = 0
    expert_width: int = 0
    expert_hidden: int = 0
    shared: int = 0
    nodes: int = 0
    matrices: int = 0
    routed: int = 0
    small: int = 0
    idle: int = 0
    biased: bool = False


class Architecture(Record, frozen=True, kw_only=True, tag=True):
    """A model of transformers. ``parameters`` are all of them; ``outside`` those by module that are neither in layers
    nor in the vocabulary's tables, and ``beside`` the encoders of images among them, which text does not pass.

    ``task`` has the batches that train it; empty if no task of the catalog does.
    ``config`` has the numbers of its text's config that say how long samples are. Without a closed form ``no_form``
    says which layer has none, and the fields after it are empty.
    """

    config_class: str
    model_class: str
    parameters: int
    encodes: bool
    causal: bool
    task: str = ""
    config: dict[str, Any]
    later: int = 0  # layers for multi-token prediction, which the config has and transformers does not build
    vocabulary: int = 0
    no_form: str = ""
    hidden: int = 0
    tied: bool = True
    head: bool = True
    layers: tuple[LayerKind, ...] = ()
    outside: dict[str, int] = {}  # noqa: RUF012 (msgspec copies it)
    beside: tuple[str, ...] = ()

    @property
    def active_parameters(self) -> int:
        """Those that one token of text passes: of the experts the chosen ones, and no encoder of images."""
        idle = sum(layer.count * layer.idle for layer in self.layers)
        return self.parameters - idle - sum(self.outside[name] for name in self.beside)


class NotBuilt(Record, frozen=True, kw_only=True, tag=True):
    """Why transformers builds nothing from a config."""

    reason: str


def architecture_of(name: str, config: Mapping[str, Any]) -> Architecture:
    """What transformers builds from the content of a config.json, in a process of its own; kept in the cache. What it
    builds from those of hub_configs.toml is in hub_architectures.json.

    Raises FileError for a config that it does not build.
    """
    if (same := next((one for one, its in hub_names.CONFIGS.items() if its == config), "")) in of_hub():
        return of_hub()[same]
    facts = [config, content_hash(CODE), version_of("transformers"), version_of("torch"), sys.version]
    key = hashlib.sha256(msgspec.json.encode(facts, order="deterministic")).hexdigest()[:20]
    kept = cache_folder() / "architectures" / f"{key}.json"
    if known := codec.read_kept(kept, Architecture):
        return known
    (found,) = build([config])
    if isinstance(found, NotBuilt):
        raise FileError(f"{name}: {found.reason.rstrip('.')}.")
    codec.keep(kept, found)
    return found


@functools.cache
def of_hub() -> dict[str, Architecture]:
    """The architectures of hub_configs.toml, by name: benchmarks/hub_architectures.py writes them."""
    return msgspec.json.decode(OF_HUB.read_bytes(), type=dict[str, Architecture])


def build(configs: Sequence[Mapping[str, Any]]) -> list[Architecture | NotBuilt]:
    """What transformers builds from each, in one process. Raises FileError if that ends without an answer."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "perfsuite.features.predict.trace.meta_process"],
        env=environment,
        input=msgspec.json.encode(configs),
        capture_output=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    if len(lines) < len(configs):
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise FileError(f"The process that builds a config's model ended early: {last or done.returncode}.")
    return [msgspec.json.decode(line, type=Architecture | NotBuilt) for line in lines]
