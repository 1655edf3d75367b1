"""The wire between the ranks: no model, for cells that measure the cost of a message (wire-all_reduce-cpu_x2)."""

from perfsuite.catalog.definitions import PROCESSES, Model, Workload

MODELS = (
    Model(
        name="wire",
        family="wire",
        task=PROCESSES["communication"].task,
        source="perfsuite",
        workload=Workload(micro_batch=0, sequence_length=0),
        parameters=0,
        build="perfsuite.rank.build_model:without_weights",
    ),
)
