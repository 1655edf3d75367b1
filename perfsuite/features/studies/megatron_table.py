"""Megatron's models of 1.7B to 1T parameters in their authors' layouts: memory, step and FLOP/s from closed forms.

Layouts, batches and FLOP/s are those of arXiv 2104.04473, table 1: fp16, every layer computed again, 8 cards of HDR
InfiniBand per node. Micro-batches and chunks are of examples/sc21/run_table_1.sh of NVIDIA/Megatron-LM at de7dc40f88.
That software had no sequence parallelism, and hid no tensor-parallel message.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused, UsageError
from perfsuite.features.predict.plan.answer import Wish, plan
from perfsuite.features.predict.plan.planned import of_model
from perfsuite.features.studies._forecast import Forecast
from perfsuite.features.studies._read_study import read_study
from perfsuite.system.units import listed, show_bytes, show_ratio

TOKENS = 300 * 10**9  # of GPT-3
NETWORK = 200e9  # bytes per second of a node: 8 cards of 200 Gbit/s
OPTIONS = {"sequence_parallel": "off", "tensor_overlap": "none"}
RATE = "FLOP/s per device"
MEASURED_ON = "a100_80g"


@dataclass(frozen=True)
class PublishedStep:
    """A row of the table: ``samples`` of a batch, the published TFLOP/s of a device, and whether gradients are sent
    during backward.
    """

    model: str
    layout: str
    samples: int
    teraflops: int
    overlapped: bool


ROWS = (
    PublishedStep("gpt_1b7", "tp1 pp1 dp32 b16 ckpt", 512, 137, True),
    PublishedStep("gpt_3b6", "tp2 pp1 dp32 b16 ckpt", 512, 138, True),
    PublishedStep("gpt_7b5", "tp4 pp1 dp32 b16 ckpt", 512, 142, True),
    PublishedStep("gpt_18b", "tp8 pp1 dp32 b8 ckpt", 1024, 135, True),
    PublishedStep("gpt_39b", "tp8 pp2 dp32 b4 ckpt", 1536, 138, False),
    PublishedStep("gpt_76b", "tp8 pp4 dp32 v3 b2 ckpt", 1792, 140, False),
    PublishedStep("gpt_145b", "tp8 pp8 dp24 v2 b2 ckpt", 2304, 148, False),
    PublishedStep("gpt_310b", "tp8 pp16 dp15 v2 b1 ckpt", 2160, 155, False),
    PublishedStep("gpt_530b", "tp8 pp35 dp9 v3 b1 ckpt", 2520, 163, False),
    PublishedStep("gpt_1t", "tp8 pp64 dp6 b1 ckpt", 3072, 163, False),
)


def forecast(models: Sequence[Model], hardware: Hardware, catalog: Catalog) -> list[Forecast]:
    """The rows up to the largest of the models. The hardware is one node; each row has as many as its layout needs.

    Raises UsageError for a model that is none of them.
    """
    known = [row.model for row in ROWS]
    if strange := [model.name for model in models if model.name not in known]:
        raise UsageError(f"{strange[0]} is no model of the table, which has {listed(known)}.")
    most = max(model.parameters for model in models)
    return [_forecast(row, hardware, catalog) for row in ROWS if catalog.get("model", row.model).parameters <= most]


def _forecast(row: PublishedStep, node: Hardware, catalog: Catalog) -> Forecast:
    """The prediction of a row on as many of these nodes as its layout needs, beside what was published."""
    widths = (int(word[2:]) for word in row.layout.split() if word[:2] in ("tp", "pp", "dp"))
    ranks = 1
    for width in widths:
        ranks *= width
    facts = {"layout": row.layout, "devices": str(ranks)}
    wish = Wish(
        tokens=TOKENS,
        samples=row.samples,
        node_network=NETWORK,
        stack="megatron",
        options=OPTIONS | {"gradient_overlap": "on" if row.overlapped else "off"},
        layout=row.layout,
    )
    try:
        if ranks % node.ranks:
            raise Refused(f"{ranks} devices do not fill nodes of {node.ranks}.")
        where = dataclasses.replace(node, nodes=ranks // node.ranks)
        wish = dataclasses.replace(wish, node_network=NETWORK if where.nodes > 1 else None)
        found = plan(of_model(catalog.get("model", row.model)), where, wish)
    except UsageError as error:
        return Forecast(name=row.model, facts=facts, reason=str(error))
    (best,) = found.layouts
    assert node.device
    return Forecast(
        name=row.model,
        facts=facts | {"fits": "yes" if found.fitting else "no"},
        predicted={
            "memory": best.predicted_bytes,
            "step": best.predicted_step_seconds,
            RATE: best.predicted_hfu * node.device.dense_flops[found.precision],
            "days of 300B tokens": found.days[1],
        },
        published={RATE: row.teraflops * 1e12} if node.device.name == MEASURED_ON else {},
    )


def answer(rows: Sequence[Forecast]) -> list[str]:
    """How near the predictions are to what was published, and what fits."""
    known = [row for row in rows if row.predicted]
    if not known:
        return [f"No row is predicted: {rows[0].reason}"] if rows else []
    off = {row.name: row.predicted[RATE] / row.published[RATE] - 1 for row in known if row.published}
    worst = max(off, key=lambda name: abs(off[name]), default="")
    fullest = max(known, key=lambda row: row.predicted["memory"])
    without = [row.name for row in known if row.facts["fits"] == "no"]
    return [
        f"Predicted FLOP/s are off by {show_ratio(sum(map(abs, off.values())) / len(off))} on average, and by "
        f"{show_ratio(abs(off[worst]))} at most ({worst})."
        if off
        else f"The published FLOP/s are those of {MEASURED_ON}.",
        f"{fullest.name} needs most memory of a device: {show_bytes(fullest.predicted['memory'])}.",
        f"By the closed form, {', '.join(without)} may not fit." if without else "All of them fit the device.",
        "One replica of up to 8 devices is tensor-parallel within a node; larger models add pipeline stages.",
    ]


STUDIES = (read_study(__file__, forecast=forecast, answer=answer),)
