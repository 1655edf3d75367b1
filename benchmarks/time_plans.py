"""Twelve plans that people ask for, with the recipe that somebody published, as a table.

python benchmarks/time_plans.py    # writes docs/data/time/plans.csv
"""

from dataclasses import dataclass, field

from result_tables import write_table
from time_summary import percent

from perfsuite.catalog.cell import parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.plan.answer import Wish, plan
from perfsuite.features.predict.plan.planned import planned
from perfsuite.features.predict.prediction import Plan
from perfsuite.system.units import show_count, show_ratio, show_whole

CATALOG = Catalog(())
COLUMNS = (
    "perfsuite plan …", "planned", "tokens/s a device", "MFU", "days",
    "recipe", "recipe, tokens/s a device", "recipe, MFU", "recipe, days",
    "published", "recipe by published", "regime", "source, and why they differ",
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A question, and what was published: its layout, tokens per second and device (0: none), and where.

    ``why`` explains how the plan differs from the recipe. ``options`` are the recipe's, where they are not the usual.
    """

    model: str
    hardware: str
    tokens: float
    batch: int
    recipe: str
    rate: float
    source: str
    why: str
    stack: str = ""
    precision: str = ""
    sequence: int | None = None
    target: int | None = None
    options: dict[str, str] = field(default_factory=dict)
    recipe_stack: str = ""  # of the recipe, if the plan is asked for another one

    @property
    def command(self) -> str:
        """What a user would type after ``perfsuite plan``."""
        words = [f"{self.model} --hardware {self.hardware} --tokens {self.tokens:g} --batch {self.batch}"]
        words += [f"--stack {self.stack}"] if self.stack else []
        words += [f"--precision {self.precision}"] if self.precision else []
        words += [f"-s {self.sequence}"] if self.sequence else []
        words += [f"-t {self.target}"] if self.target else []
        options = " ".join(f"{name}={value}" for name, value in self.options.items())
        return " ".join([*words, *([f"--set {options}"] if options else [])])


BRIDGE = "Megatron-Bridge, docs/performance-summary.md"
TWELVE = (
    Asked(
        "llama_8b", "h100_x8n8", 15e12, 512, "tp1 pp1 dp64 b1 ckpt_operators zero3", 6514.0,
        "torchtitan on 128 H100 of 500 W, benchmarks/llama3_h100_202412_torchtitan.md",
        "Megatron-core keeps parameters and gradients whole, so nothing is gathered, and recomputes less. The "
        "published devices have a lower power limit and slower memory.",
        recipe_stack="torchtitan",
    ),
    Asked(
        "llama_70b", "h100_x8n8", 15e12, 128, "tp1 pp1 dp32 cp2 b1 ckpt zero3 shard16", 866.8,
        "NeMo Automodel on 64 H100, docs/performance-summary.mdx",
        "FSDP2 recomputes all layers. A pipeline with tensor parallelism recomputes none.",
        recipe_stack="automodel",
    ),
    Asked(
        "llama_405b", "h100_x8n2048", 15.6e12, 2048, "tp8 pp16 dp128 v2 b1 zero1", 158.0,
        "arXiv 2407.21783, table 4: 16,384 H100, 400 TFLOP/s a device, causal attention halved",
        "The batch of 16 million tokens leaves 16 micro-batches for 16 stages, so chunks decide. The paper does not "
        "say how many it has; its figure 6 shows two. With 4 the rate would be 176 tokens, with 8 it would be 192. Its "
        "own figure includes what a training of 16,384 devices waits for.",
    ),
    Asked(
        "llama_405b", "gb300_x4n64", 15e12, 1536, "tp2 pp8 dp8 cp2 v4 b1 zero1", 952.0, f"{BRIDGE}, 26.06",
        "Ranks share a sequence in the recipe. The plan divides layers instead.",
        precision="mxfp8",
    ),
    Asked(
        "qwen3_30b_a3b", "gb200_x4n2", 36e12, 512, "tp1 pp1 dp8 ep8 b4 zero1", 40960.0, f"{BRIDGE}, 26.06.01",
        "Few ranks hold many experts as fast as all ranks few: messages are hidden.",
        precision="mxfp8",
    ),
    Asked(
        "qwen3_235b_a22b", "gb300_x4n64", 36e12, 8192, "tp1 pp4 dp64 ep32 v12 b2 zero1", 9008.0, f"{BRIDGE}, 26.06.01",
        "Ranks that divide the experts need no pipeline. Its messages cross racks, which the intervals say little of.",
        precision="mxfp8",
    ),
    Asked(
        "deepseek_v3", "h800_x8n256", 14.8e12, 15360, "tp1 pp16 dp128 ep64 v2 b1 ckpt_pointwise zero1", 1543.0,
        "arXiv 2412.19437: 180,000 device-hours for a trillion tokens on 2,048 H800",
        "DeepSeek overlaps its exchanges in both directions (DualPipe), quantises them, and gives them 20 of 132 "
        "multiprocessors, which the planner counts too. Its moments have two bytes. Real routing is not balanced, and "
        "the published hours include all that a training waits for.",
        precision="fp8", options={"dispatch_overlap": "on"},
    ),
    Asked(
        "gpt3_175b", "a100_80g_x8n128", 300e9, 1536, "tp8 pp8 dp16 v3 b1 ckpt_selective zero1", 149.0,
        "arXiv 2205.05198, table 5: 51.4 % of the peak on 64 A100, without replicas",
        "The plan is asked for the software of 2022, as the paper is. Replicas add messages.",
        stack="megatron",
    ),
    Asked(
        "t5_11b", "h100_x8", 1e9, 64, "tp1 pp1 dp8 b8 zero3", 0.0, "none with transformers and DeepSpeed",
        "ZeRO-3 holds the state of 11 billion parameters on eight devices. Eight samples at once leave too little room "
        "to be sure that they fit.", sequence=512, target=128,
    ),
    Asked(
        "llama_8b", "rtx3090_x8", 1e9, 64, "tp1 pp1 dp8 b1 ckpt zero3", 0.0, "none",
        "These cards may not read each other's memory. So tensor parallelism does not pay, and ZeRO-3 is chosen.",
        sequence=2048,
    ),
    Asked(
        "bloom_7b1", "a100_80g_x8", 366e9, 512, "tp1 pp1 dp8 b2 ckpt zero3", 0.0,
        "none of this model on one node: BLOOM was trained on several",
        "Megatron-core divides the optimizer's state alone, and gathers no parameters in layers. The recipe is one "
        "that people use with FSDP2.",
        recipe_stack="fsdp2",
    ),
    Asked(
        "llama_70b", "gb200_x4n18", 15e12, 288, "tp2 pp4 dp9 v5 b1 zero1", 3837.0,
        f"{BRIDGE}, 26.02.01, on 64 GB200 with a batch of 256",
        "All 72 devices are one NVLink domain, so tensor parallelism may cross nodes of four.",
        precision="mxfp8",
    ),
)  # fmt: skip


def answers(asked: Asked) -> tuple[Plan, Plan]:
    """The plan, and the recipe's layout alone."""
    model = planned(asked.model, CATALOG, {}).with_lengths(asked.sequence, asked.target)
    hardware = parse_hardware(asked.hardware, CATALOG)
    found = []
    for layout in ("", asked.recipe):
        wish = Wish(
            tokens=int(asked.tokens),
            samples=asked.batch,
            stack=asked.recipe_stack if layout and asked.recipe_stack else asked.stack,
            precision=asked.precision,
            options=asked.options,
            layout=layout,
            count=1,
        )
        found.append(plan(model, hardware, wish))
    return found[0], found[1]


def row(asked: Asked) -> tuple[str, ...]:
    """One plan, its recipe, and what was published."""
    best, recipe = answers(asked)
    published = show_whole(asked.rate) if asked.rate else "–"
    off = regime = ""
    if asked.rate and recipe.layouts:
        first = recipe.layouts[0]
        off = percent(first.predicted_tokens_per_second / recipe.world_size / asked.rate - 1, "+")
        regime = first.regime
    return (
        asked.command,
        *first_layout(best),
        *first_layout(recipe),
        published,
        off,
        regime,
        f"{asked.source}. {asked.why}",
    )


def first_layout(one: Plan) -> tuple[str, str, str, str]:
    """The layout, its tokens per second and device with their interval, its MFU, and the days."""
    if not one.layouts:
        return "none fits", "", "", ""
    first, count = one.layouts[0], one.world_size
    rate = first.predicted_tokens_per_second / count
    steps = first.predicted_step_seconds
    ends = [rate * steps / end for end in (first.high_seconds, first.low_seconds)]
    shown = f"{show_whole(rate)} ({'–'.join(map(show_whole, ends))})"
    return first.layout, shown, show_ratio(first.predicted_mfu), show_count(one.days[1])


def main() -> int:
    """Write the table."""
    print(write_table("time/plans", COLUMNS, [row(asked) for asked in TWELVE]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
