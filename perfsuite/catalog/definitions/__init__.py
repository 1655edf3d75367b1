"""The types of the catalog, which definition files use. Data only; nothing here imports torch."""

from perfsuite.catalog.definitions.device import CPU_TIME_TOLERANCE, DEDICATED_TIME_TOLERANCE, Device
from perfsuite.catalog.definitions.metric import (
    EVERY_DIFFERENCE,
    OF_A_CHECKPOINT,
    OF_A_PEAK,
    OF_A_STEP,
    Materiality,
    Metric,
)
from perfsuite.catalog.definitions.model import Cut, Model, Workload
from perfsuite.catalog.definitions.strategy import HALF_PRECISION, Engine, Layout, Proposal, Technique
from perfsuite.catalog.definitions.study import Study, Variant

__all__ = [
    "CPU_TIME_TOLERANCE",
    "DEDICATED_TIME_TOLERANCE",
    "EVERY_DIFFERENCE",
    "HALF_PRECISION",
    "OF_A_CHECKPOINT",
    "OF_A_PEAK",
    "OF_A_STEP",
    "Cut",
    "Device",
    "Engine",
    "Layout",
    "Materiality",
    "Metric",
    "Model",
    "Proposal",
    "Study",
    "Technique",
    "Variant",
    "Workload",
]
