"""Rows of token ids: no model, for cells that only load data (rows-hf_map-cpu_x2)."""

from perfsuite.catalog.definitions import PROCESSES, Model, Workload

MODELS = (
    Model(
        name="rows",
        family="rows",
        task=PROCESSES["data"].task,
        source="perfsuite",
        workload=Workload(micro_batch=4, sequence_length=16),
        parameters=0,
        build="perfsuite.rank.build_model:without_weights",
    ),
)
