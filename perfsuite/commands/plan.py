"""``perfsuite plan MODEL``: which layout trains fastest on absent hardware, for how long, and what that costs."""

import argparse
import dataclasses
import math
from pathlib import Path

from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Hardware, parse_hardware
from perfsuite.commands._base import add_catalog, add_html, catalog_of, check_counts, html_of, with_lengths, write_html
from perfsuite.commands._reports import read_run
from perfsuite.errors import Refused, UsageError
from perfsuite.page.predictions import plan_page
from perfsuite.paths import check_output
from perfsuite.predict.plan.answer import Wish, plan, spans_of_best
from perfsuite.predict.plan.network import Network, network_of
from perfsuite.predict.time import fitted
from perfsuite.predict.time.chrome import write_trace
from perfsuite.predict.time.constants import NETWORK
from perfsuite.records import codec
from perfsuite.records.prediction import Plan
from perfsuite.report.plan import breakdown, choices, scaling, summary
from perfsuite.report.tables import print_table
from perfsuite.units import parse_bytes, parse_days, parse_network, show_rate

HELP = "Which layout trains fastest, for how long."


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("model", metavar="MODEL", help="A model of `perfsuite list models`.")
    parser.add_argument("--hardware", required=True, metavar="H", help="Device, ranks and nodes, e.g. a100_80g_x8n16.")
    parser.add_argument("--tokens", type=float, required=True, metavar="N", help="Tokens of the training, e.g. 300e9.")
    parser.add_argument("--batch", type=int, metavar="N", help="Samples of a global batch (4 Mi tokens).")
    parser.add_argument("-s", "--sequence-length", type=int, metavar="N", help="Tokens per sample (the model's own).")
    parser.add_argument("-t", "--target-length", type=int, metavar="N", help="Tokens that a decoder generates.")
    text = "Of a whole node, e.g. 400Gbit/s, or a report.jsonl of wire cells on several nodes (usual for the device)."
    parser.add_argument("--network", metavar="RATE", help=text)
    text = "Memory of a node's host, for offload (1TiB)."
    parser.add_argument("--host-memory", default="1TiB", metavar="SIZE", help=text)
    text = f"Software whose constants apply ({', '.join(fitted.STACKS)}; default megatron)."
    parser.add_argument("--stack", default="megatron", choices=fitted.STACKS, metavar="S", help=text)
    parser.add_argument("--top", type=int, default=5, metavar="N", help="Layouts to show (5).")
    parser.add_argument("--deadline", metavar="TIME", help="Find the fewest nodes that finish in time, e.g. 30d.")
    parser.add_argument("--min-nodes", action="store_true", help="Find the fewest nodes on which any layout fits.")
    text = "Also plan on half as many nodes, a quarter, and so on."
    parser.add_argument("--scaling", action="store_true", help=text)
    parser.add_argument("--max-model", action="store_true", help="Find the family's largest model that fits.")
    parser.add_argument("--price", type=float, metavar="X", help="Of one device for one hour.")
    text = "Write the best layout's step for Perfetto to this file."
    parser.add_argument("--trace", type=Path, metavar="FILE.json", help=text)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the plan to this file too.")
    add_html(parser)
    add_catalog(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan. Exit code 1 if no layout fits, or none finishes in time."""
    catalog = catalog_of(arguments)
    check_output("--json", arguments.json, ".json")
    check_output("--trace", arguments.trace, ".json")
    page = html_of(arguments)
    model = catalog.get("model", arguments.model)
    hardware = parse_hardware(arguments.hardware, catalog)
    wish = wish_of(arguments, hardware, catalog)
    if arguments.max_model:
        model = _largest(model, hardware, wish, catalog)
    found = [plan(workload_of(arguments, model), one, wish) for one in _sizes(hardware, arguments)]
    chosen = _chosen(found, arguments)
    print("\n".join(summary(chosen)))
    if chosen.layouts:
        print()
        print_table(choices(chosen))
        print()
        print_table(breakdown(chosen))
    if len(found) > 1:
        print()
        print_table(scaling(found))
    if arguments.json:
        codec.write(arguments.json, chosen)
    if arguments.trace and chosen.layouts:
        where = parse_hardware(chosen.hardware, catalog)
        found_spans = spans_of_best(workload_of(arguments, model), where, wish, chosen)
        title = f"{chosen.model} on {chosen.hardware}, {chosen.layouts[0].layout}: predicted, not measured"
        write_trace(arguments.trace, title, found_spans)
        print(f"\n{arguments.trace} is written: open it in https://ui.perfetto.dev.")
    write_html(page, plan_page(chosen, found))
    late = arguments.deadline is not None and not _in_time(chosen, parse_days(arguments.deadline))
    return 0 if chosen.layouts and not late else 1


def wish_of(arguments: argparse.Namespace, hardware: Hardware, catalog: Catalog) -> Wish:
    """The options that every size of the hardware shares. Raises UsageError for an invalid one."""
    for name, number in (("--tokens", arguments.tokens), ("--batch", arguments.batch), ("--price", arguments.price)):
        if number is not None and not 0 < number < math.inf:
            raise UsageError(f"{name} must be a number above 0, not {number}.")
    check_counts(arguments, "top")
    if arguments.min_nodes and arguments.deadline:
        raise UsageError("--min-nodes and --deadline both choose the number of nodes: give one of them.")
    network = network_from(arguments.network, hardware, arguments.stack, catalog)
    return Wish(
        tokens=int(arguments.tokens),
        samples=arguments.batch,
        node_network=network.rate if network else None,
        latency=network.latency if network else 1.0,
        stack=arguments.stack,
        price=arguments.price,
        host_memory=parse_bytes(arguments.host_memory),
        count=arguments.top,
    )


def network_from(text: str | None, hardware: Hardware, stack: str, catalog: Catalog) -> Network | None:
    """The rate, or what a report has measured. Raises UsageError."""
    if not text:
        return None
    if not text.endswith(".jsonl"):
        return Network(rate=parse_network(text), latency=1.0, cell="")
    results, _ = read_run(Path(text))
    found = network_of((one.measurement for one in results), hardware, stack, catalog, text)
    told = f"reaches {show_rate(NETWORK * found.rate)} per node, with {found.latency:.3g} times NCCL's usual latency"
    print(f"The network, as {found.cell} measured it, {told}.\n")
    return found


def workload_of(arguments: argparse.Namespace, model: Model) -> Model:
    """The model with the lengths of the options. Raises Refused for lengths that it cannot have."""
    lengths = {"sequence_length": arguments.sequence_length, "target_length": arguments.target_length}
    return dataclasses.replace(model, workload=with_lengths(model, "A length", **lengths))


def _sizes(hardware: Hardware, arguments: argparse.Namespace) -> list[Hardware]:
    """The hardware alone; or, if other numbers of nodes are asked for, all of its halves, from one node on."""
    if not (arguments.min_nodes or arguments.deadline or arguments.scaling):
        return [hardware]
    sizes = {hardware.nodes, *(2**power for power in range(hardware.nodes.bit_length()) if 2**power <= hardware.nodes)}
    return [dataclasses.replace(hardware, nodes=one) for one in sorted(sizes)]


def _in_time(one: Plan, days: float) -> bool:
    """Whether the upper end of the interval is in time."""
    return bool(one.days) and one.days[2] <= days


def _chosen(found: list[Plan], arguments: argparse.Namespace) -> Plan:
    """The plan with the fewest nodes that has what was asked for; the largest if none has, or nothing was asked."""
    if arguments.deadline:
        days = parse_days(arguments.deadline)
        return next((one for one in found if _in_time(one, days)), found[-1])
    return next((one for one in found if one.layouts and arguments.min_nodes), found[-1])


def _largest(model: Model, hardware: Hardware, wish: Wish, catalog: Catalog) -> Model:
    """The largest model of the family that fits. Raises Refused if none does."""
    family: list[Model] = [one for one in catalog.all("model").values() if one.family == model.family]
    for one in sorted(family, key=lambda one: -one.parameters):
        if plan(one, hardware, wish).layouts:
            return one
    raise Refused(f"No model of the family {model.family} fits on {hardware.name}.")
