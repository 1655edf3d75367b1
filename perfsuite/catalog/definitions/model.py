"""A model and its input, as the catalog's files define them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The input of one rank in one micro-batch.

    ``micro_batch`` samples of ``sequence_length`` tokens (0 if samples have none); a sequence-to-sequence model also
    decodes ``target_length`` tokens (None for all others).
    """

    micro_batch: int
    sequence_length: int = 0
    target_length: int | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """One architecture at one size, built with random weights.

    ``config_class`` and ``model_class`` are names in ``transformers``, ``config`` the keyword arguments of the
    config's constructor. A model from outside transformers gives ``build`` instead: ``"package.module:function"``,
    called in the rank with this Model and returning a ``torch.nn.Module``.

    A ``task`` stands for batches of token ids. Any other model gives ``batch`` instead, a function of this Model (with
    the cell's workload) and the seeds of a micro-batch's samples, one number each. It returns tensors or arrays in any
    structure, on the CPU, drawn from those numbers alone. ``loss`` is a function of the module and that structure, and
    returns the mean loss; by default the module is called with it, and its output's ``.loss`` is taken. If the
    micro-batches have different numbers of what the loss is the mean of, ``items`` returns that of one, from its
    structure.

    ``parameters`` is the exact number of elements of all parameters, tied ones counted once: a rank refuses to time a
    model with another number. Without it (0), they are counted, and compared with the baseline's. ``source`` says where
    the dimensions come from. ``packages`` are distributions that it needs in addition to torch, transformers,
    accelerate and DeepSpeed: their versions are recorded, and a trial restores them.

    A script (task "script") has a ``command`` that trains, and the ``folder`` in which it starts. With a ``launcher``
    (catalog/scripts.py), that starts the command on the ranks of the cell.
    """

    name: str
    family: str
    task: str = ""
    source: str
    workload: Workload
    parameters: int = 0
    config_class: str = ""
    model_class: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    build: str = "perfsuite.rank.build_model:from_transformers"
    batch: str = ""
    loss: str = "perfsuite.rank.batches:loss_of_output"
    items: str = ""
    positions: int | None = None  # the number of learned positions, which limits a sequence; None: they are computed
    vocabulary: int = 0  # tokens are drawn from [first_token, vocabulary)
    first_token: int = 2  # the tokens below it are padding and end of sequence
    attentions: frozenset[str] = frozenset({"eager", "sdpa", "flash_attention_2"})  # supported by transformers
    experts: int = 0  # of a layer, that transformers has a plan to divide; 0: none
    frozen: tuple[str, ...] = ()  # paths of transformers' modules that are not trained, such as an image's encoder
    cut: "Cut | None" = None  # where a pipeline may cut it; None: it cannot be cut
    divisible: Mapping[str, int] | None = None  # sizes that a tensor-parallel width must divide; None: there is no plan
    packages: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    folder: str = ""
    launcher: str = ""

    @property
    def has_own_code(self) -> bool:
        """Whether a function of it is the user's."""
        functions = filter(None, (self.build, self.batch, self.loss, self.items))
        return not all(one.startswith("perfsuite.") for one in functions)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where a decoder is cut into pipeline stages; every name is a path from the model.

    Stages share the ``depth`` modules of ``layers`` evenly. Only stage 0 has ``first`` (the embeddings, and modules
    applied to their sum), only the last stage has ``last`` (the final norm and the head). ``body`` is the module
    between inputs and head; it takes hidden states as ``inputs_embeds``. ``tied`` are the names of one parameter in the
    first and in the last stage.
    """

    body: str
    layers: str
    depth: int
    first: tuple[str, ...]
    last: tuple[str, ...]
    tied: tuple[str, str] | None = None
