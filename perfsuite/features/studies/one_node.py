"""The largest model of a family that one node trains, and the fewest nodes that hold a model, by framework.

The frameworks are those of which an engine here is a part. Their best layouts are the planner's, offload included.
"""

import dataclasses
from collections.abc import Sequence

from perfsuite.catalog.cell import Hardware
from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.features.predict.plan.answer import Wish, plan
from perfsuite.features.predict.plan.planned import of_model
from perfsuite.features.predict.plan_table import lacking
from perfsuite.features.predict.prediction import Plan
from perfsuite.features.studies._forecast import Forecast
from perfsuite.features.studies._read_study import read_study
from perfsuite.system.units import show_count, show_several

MOST = 64  # nodes
TOKENS = 300 * 10**9
LARGEST, FEWEST = "largest on one node", "fewest nodes"


def forecast(models: Sequence[Model], hardware: Hardware, catalog: Catalog) -> list[Forecast]:
    """Rows for every framework: for each family one on one node of the hardware, for each model one on several nodes.

    Raises UsageError if no framework has a closed form there.
    """
    stacks = sorted({stack for engine in catalog.all("engine").values() for stack in engine.stacks})
    first = {model.family: model.name for model in reversed(models)}  # its row of the family is that of the others, too
    asked = [(model, (LARGEST, FEWEST) if first[model.family] == model.name else (FEWEST,)) for model in models]
    rows = [
        _row_of(question, model, stack, hardware, catalog)
        for model, questions in asked
        for stack in stacks
        for question in questions
    ]
    if not any(row.predicted or row.facts for row in rows):  # nothing was tried
        raise UsageError(rows[0].reason)
    return rows


def _row_of(question: str, model: Model, stack: str, hardware: Hardware, catalog: Catalog) -> Forecast:
    """A framework's answer; the reason if it does not train on such a device."""
    node, wish = dataclasses.replace(hardware, nodes=1), Wish(tokens=TOKENS, stack=stack, count=1)
    name = f"{stack}: {question}"
    try:
        if question == FEWEST:
            return _fewest(name, model, node, wish)
        family = [one for one in catalog.all("model").values() if one.family == model.family]
        return _largest(name, sorted(family, key=lambda one: -one.parameters), node, wish)
    except UsageError as error:
        return Forecast(name=name, reason=str(error))


def _largest(name: str, models: Sequence[Model], node: Hardware, wish: Wish) -> Forecast:
    """The first of the models that fits."""
    for model in models:
        found = plan(of_model(model), node, wish)
        if found.layouts:
            return _row(name, model, found, 1)
    return Forecast(name=name, facts={"model": models[-1].name}, reason=f"none fits: {lacking(found)}.")


def _fewest(name: str, model: Model, node: Hardware, wish: Wish) -> Forecast:
    """The model on the fewest nodes: doubled until it fits, and then all numbers between."""

    def on(nodes: int) -> Plan:
        return plan(of_model(model), dataclasses.replace(node, nodes=nodes), wish)

    nodes, found = 1, on(1)
    while not found.layouts and nodes < MOST:
        nodes *= 2
        found = on(nodes)
    if not found.layouts:
        reason = f"it does not fit on {show_several(MOST, 'node')}: {lacking(found)}."
        return Forecast(name=name, facts={"model": model.name}, reason=reason)
    between = ((fewer, on(fewer)) for fewer in range(nodes // 2 + 1, nodes))
    nodes, found = next(((fewer, one) for fewer, one in between if one.layouts), (nodes, found))
    return _row(name, model, found, nodes)


def _row(name: str, model: Model, found: Plan, nodes: int) -> Forecast:
    best = found.layouts[0]
    return Forecast(
        name=name,
        facts={"model": model.name, "layout": best.layout},
        predicted={
            "parameters": model.parameters,
            "nodes": nodes,
            "memory": best.predicted_bytes,
            "tokens/s": best.predicted_tokens_per_second,
        },
    )


def answer(rows: Sequence[Forecast]) -> list[str]:
    """The largest model and the fewest nodes of all frameworks, and which framework has them."""
    large = [row for row in rows if row.name.endswith(LARGEST) and row.predicted]
    few = [row for row in rows if row.name.endswith(FEWEST) and row.predicted]
    sentences = []
    if large:
        best = max(large, key=lambda row: (row.predicted["parameters"], row.predicted["tokens/s"]))
        billions = show_count(best.predicted["parameters"] / 1e9)
        how = f"{best.name.partition(':')[0]}, {best.facts['layout']}"
        sentences.append(f"One node trains {best.facts['model']} at most: {billions} billion parameters ({how}).")
    if few:
        best = min(few, key=lambda row: (row.predicted["nodes"], -row.predicted["tokens/s"]))
        nodes = show_several(int(best.predicted["nodes"]), "node")
        how = f"{best.name.partition(':')[0]}, {best.facts['layout']}"
        sentences.append(f"{best.facts['model']} needs {nodes} at least ({how}).")
    if any("offload" in row.facts["layout"].split() for row in [*large, *few]):
        sentences.append("Tokens per second with offload are an upper bound: no table has measured the host's Adam.")
    return sentences or ["Nothing fits on this hardware."]


STUDIES = (read_study(__file__, forecast=forecast, answer=answer),)
