"""The savings and costs of each way to save memory, one at a time, in training and in inference.

Accumulation trains on the same batch in four micro-batches. Inference needs neither gradients nor optimizer.
"""

from perfsuite.catalog.definitions import Study, Variant
from perfsuite.studies._study_rows import Results
from perfsuite.studies._words import against_reference, anatomy
from perfsuite.units import show_bytes

BASELINE = "nothing (fp32, AdamW)"
BATCH = 8
METRICS = {"peak_memory_bytes": "peak memory", "step_time_seconds": "step time"}


def answer(results: Results) -> list[str]:
    """The possible savings, what each row saves, and the row that saves most in training."""
    baseline = results.get(BASELINE)
    sentences = [f"The baseline's peak memory: {anatomy(baseline)}."] if baseline.fits else []
    sentences += against_reference(results, METRICS)
    training = [row for row in results.rows if row.fits and not row.row.startswith("inference")]
    if training:
        best = min(training, key=lambda row: row.value("peak_memory_bytes") or 0)
        sentences.append(
            f"The least memory in training: {best.row}, {show_bytes(best.value('peak_memory_bytes') or 0)}."
        )
    return sentences


def row(name: str, *techniques: str, engine: str = "single", micro_batch: int = BATCH) -> Variant:
    """One choice on one rank."""
    return Variant(name=name, engine=engine, techniques=techniques, micro_batch=micro_batch)


STUDIES = (
    Study(
        name="memory-ablation",
        question="What does each strategy for efficient GPU memory management save in training and in inference?",
        asked="the repository Memory_Ablation, whose table of results is empty",
        model="gpt2_tiny",
        hardware="cpu_x1",
        rows=(
            row(BASELINE),
            row("gradient accumulation", "acc4", micro_batch=BATCH // 4),
            row("gradient checkpointing", "ckpt"),
            row("mixed precision bf16", "bf16"),
            row("mixed precision fp16", "fp16"),
            row("pruning", "prune"),
            row("structured pruning", "prune_structured"),
            row("Adafactor", "adafactor"),
            row("8-bit AdamW", "adamw8bit"),
            row("inference: forward", engine="forward"),
            row("inference: forward in bf16", "bf16", engine="forward"),
            row("inference: generate", engine="generate"),
            row("inference: TensorRT", engine="tensorrt"),
            row("inference: LightSeq", engine="lightseq"),
        ),
        reference=BASELINE,
        metrics=("peak_memory_bytes", "step_time_seconds", "tokens_per_second"),
        answer=answer,
    ),
)
