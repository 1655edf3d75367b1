"""``perfsuite plan MODEL``: which layout trains fastest on absent hardware, for how long, and what that costs."""

import argparse
import contextlib
import dataclasses
import math
import sys
from pathlib import Path

import msgspec

from perfsuite.catalog.cell import Hardware, parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.shared_options import add_html, add_shared, catalog_of, check_counts, count, html_of, write_html
from perfsuite.errors import Refused, UsageError
from perfsuite.features.predict.own_model import find_model, is_config
from perfsuite.features.predict.plan.answer import Wish, plan, spans_of_best
from perfsuite.features.predict.plan.network import Network, network_of
from perfsuite.features.predict.plan.planned import NUMBERS, Planned, numbers_of, of_model, planned
from perfsuite.features.predict.plan.question import on_hardware, usual
from perfsuite.features.predict.plan.traced_layouts import verify_each
from perfsuite.features.predict.plan_table import (
    breakdown,
    choices,
    lacking,
    scaling,
    summary,
    verified,
    verified_notes,
)
from perfsuite.features.predict.prediction import Plan, VerifiedLayout
from perfsuite.features.predict.prediction_pages import plan_page
from perfsuite.features.predict.time.constants import NETWORK
from perfsuite.features.predict.time.options import OF_EXPERTS, OPTIONS
from perfsuite.features.predict.time.precision import PRECISIONS
from perfsuite.features.predict.time.schedule import write_trace
from perfsuite.features.predict.time.software import SOFTWARE
from perfsuite.records import codec, report_lines
from perfsuite.settings.keys import CATALOG
from perfsuite.settings.setting import assignments
from perfsuite.show.text.tables import print_table
from perfsuite.system.paths import check_output
from perfsuite.system.units import parse_bytes, parse_days, parse_network, show_count, show_rate

HELP = "Which layout trains fastest, for how long."
QUESTION = "predict"
EXAMPLES = (
    "perfsuite plan gpt3_175b --hardware a100_80g_x8n128 --tokens 300B",
    "perfsuite plan llama_8b --hardware h100_x8 --tokens 1T --price 2.5",
)
PAGE = "plan"
STARTS_PROCESSES = True  # to trace
VERIFY = 3  # layouts
MOST = 1e18  # tokens, samples or a price: more is a slip of the hand


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    text = "A model of `perfsuite list models` or of the Hugging Face hub, a config.json, or a name for your own."
    parser.add_argument("model", metavar="MODEL", help=text)
    parser.add_argument("--hardware", required=True, metavar="H", help="Device, ranks and nodes, e.g. a100_80g_x8n16.")
    parser.add_argument("--tokens", type=count, required=True, metavar="N", help="Tokens of the training, e.g. 300B.")
    parser.add_argument("--batch", type=count, metavar="N", help="Samples of a global batch (4 Mi tokens).")
    parser.add_argument("-s", "--sequence-length", type=count, metavar="N", help="Tokens per sample (the model's own).")
    parser.add_argument("-t", "--target-length", type=count, metavar="N", help="Tokens that a decoder generates.")
    text = "Of a whole node, e.g. 400Gbit/s, or a report.jsonl of wire cells on several nodes (usual for the device)."
    parser.add_argument("--network", metavar="RATE", help=text)
    text = "Memory of a node's host, for offload (1TiB)."
    parser.add_argument("--host-memory", default="1TiB", metavar="SIZE", help=text)
    text = f"Software that trains ({', '.join(SOFTWARE)}; by default the usual one there)."
    parser.add_argument("--stack", choices=SOFTWARE, metavar="S", help=text)
    parser.add_argument("--precision", choices=PRECISIONS, metavar="P", help=f"Of products: {', '.join(PRECISIONS)}.")
    options = "; ".join(f"{option.name}={option.values}" for option in OPTIONS.values())
    text = f"What the software does otherwise: {options}."
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=text)
    text = "Predict this layout alone, whether it fits or not, e.g. 'tp8 pp8 dp16 v6 b1 zero1'."
    parser.add_argument("--layout", metavar="WORDS", help=text)
    named = ", ".join(f"{name} ({what})" for name, what in NUMBERS.items())
    text = f"The numbers of your own model, which MODEL names: {named}."
    parser.add_argument("--shape", nargs="+", action="extend", default=[], metavar="NAME=N", help=text)
    parser.add_argument("--top", type=count, default=5, metavar="N", help="Layouts to show (5).")
    parser.add_argument("--deadline", metavar="TIME", help="Find the fewest nodes that finish in time, e.g. 30d.")
    text = (
        "nodes: the fewest on which any layout fits. model: the family's largest that fits. scaling: on half as many "
        "nodes, a quarter, and so on."
    )
    parser.add_argument("--seek", choices=("nodes", "model", "scaling"), help=text)
    parser.add_argument("--price", type=float, metavar="X", help="Of one device for one hour.")
    text = "Write the best layout's step for Perfetto to this file."
    parser.add_argument("--trace", type=Path, metavar="FILE.json", help=text)
    text = f"Trace the best N layouts, one rank of all, and compare their memory with the closed form ({VERIFY})."
    parser.add_argument("--verify", nargs="?", type=count, const=VERIFY, metavar="N", help=text)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the plan to this file too.")
    add_html(parser)
    add_shared(parser, CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan. Exit code 1 if no layout fits, or not the one of --layout, or none finishes in time; and if a
    layout of --verify was not traced, or its trace does not fit.
    """
    catalog = catalog_of(arguments)
    check_output("--json", arguments.json, ".json")
    check_output("--trace", arguments.trace, ".json")
    page = html_of(arguments)
    model = model_of(arguments, catalog)
    hardware = parse_hardware(arguments.hardware, catalog)
    wish = wish_of(arguments, model, hardware, catalog)
    if arguments.seek == "model":
        model = _largest(model, hardware, wish, catalog)
    days = parse_days(arguments.deadline) if arguments.deadline else math.inf
    found = _plans(model, hardware, wish, arguments, days)
    chosen = next((one for one in found if _suits(one, days)), found[-1]) if _sought(arguments) else found[-1]
    print("\n".join(summary(chosen)))
    if chosen.layouts:
        print()
        print_table(choices(chosen))
        print()
        print_table(breakdown(chosen))
    late = arguments.deadline is not None and chosen.layouts and not _suits(chosen, days)
    if late:
        needed = f"{show_count(chosen.days[2])} days on {chosen.hardware}, at the upper end of the interval"
        print(f"\nNo number of nodes is in time: {needed}.")
    if len(found) > 1:
        print()
        print_table(scaling(found))
    chosen = _verified(chosen, model, wish, arguments, catalog)
    if arguments.json:
        codec.write(arguments.json, chosen)
    if arguments.trace and chosen.layouts:
        where = parse_hardware(chosen.hardware, catalog)
        found_spans = spans_of_best(model, where, wish, chosen)
        title = f"{chosen.model} on {chosen.hardware}, {chosen.layouts[0].layout}: predicted, not measured"
        write_trace(arguments.trace, title, found_spans)
        print(f"\n{arguments.trace} is written: open it in https://ui.perfetto.dev.")
    elif arguments.trace:
        print(f"\n{arguments.trace} is not written: no layout fits.")
    write_html(page, plan_page(chosen, found))
    fits = bool(chosen.layouts) and (chosen.fitting > 0 or not wish.layout)
    return 0 if fits and not late and all(one.traced and one.traced.fits for one in chosen.verified) else 1


def _verified(found: Plan, model: Planned, wish: Wish, arguments: argparse.Namespace, catalog: Catalog) -> Plan:
    """The plan with as many traced layouts as --verify asks for. Prints them, and on stderr when one is traced."""
    if not arguments.verify or not found.layouts:
        return found
    hardware, known = parse_hardware(found.hardware, catalog), catalog.all("model")
    traced = known.get(found.model)
    if is_config(arguments.model):
        with contextlib.suppress(UsageError):  # it names no class, and so no code
            traced = find_model(arguments.model, catalog)
    layouts = found.layouts[: arguments.verify]
    done: dict[str, VerifiedLayout] = {}
    asked = on_hardware(model, hardware, wish)
    for one in verify_each(layouts, traced, asked, hardware, catalog):
        done[one.layout] = one
        said = "traced" if one.traced else "not traced"
        print(f"[{len(done)}/{len(layouts)}] {one.layout}: {said}", file=sys.stderr, flush=True)
    found = msgspec.structs.replace(found, verified=[done[layout.layout] for layout in layouts])
    print("".join(f"\n{note}" for note in verified_notes(found)))
    if any(one.traced for one in found.verified):
        print()
        print_table(verified(found))
    return found


def wish_of(arguments: argparse.Namespace, model: Planned, hardware: Hardware, catalog: Catalog) -> Wish:
    """The options that every size of the hardware shares. Raises UsageError for an invalid one."""
    for name, number in (("--tokens", arguments.tokens), ("--batch", arguments.batch), ("--price", arguments.price)):
        if number is not None and not 0 < number <= MOST:
            raise UsageError(f"{name} must be a number above 0 and at most {MOST:.0e}, not {number}.")
    check_counts(arguments, "top", "verify")
    if arguments.seek == "nodes" and arguments.deadline:
        raise UsageError("--seek nodes and --deadline both choose the number of nodes: give one of them.")
    if arguments.layout and (arguments.seek or arguments.deadline):
        raise UsageError("--layout is one layout on all of the hardware: leave out the options that seek another size.")
    options = assignments("--set", arguments.set, "attention=flash")
    if not any(one.experts for one in model.shape.stacks) and (
        idle := [name for name in OF_EXPERTS if name in options]
    ):
        raise UsageError(f"--set {idle[0]} is about experts, and {model.name} has none.")
    stack = arguments.stack
    if hardware.device is not None:
        stack = stack or usual(model.shape, hardware.device, hardware.ranks, options)
    network = network_from(arguments.network, hardware, stack or "", catalog)
    return Wish(
        tokens=arguments.tokens,
        samples=arguments.batch,
        node_network=network.rate if network else None,
        latency=network.latency if network else 1.0,
        stack=arguments.stack or "",
        precision=arguments.precision or "",
        options=options,
        layout=arguments.layout or "",
        price=arguments.price,
        host_memory=parse_bytes(arguments.host_memory),
        count=max(arguments.top, arguments.verify or 0),
    )


def network_from(text: str | None, hardware: Hardware, stack: str, catalog: Catalog) -> Network | None:
    """The rate, or what a report has measured. Raises UsageError."""
    if not text:
        return None
    if hardware.nodes == 1:
        raise UsageError(f"--network is between nodes, and {hardware.name} is one node.")
    if not text.endswith(".jsonl"):
        return Network(rate=parse_network(text), latency=1.0, cell="")
    measured = (one.measurement for one in report_lines.read_measured(Path(text)))
    found = network_of(measured, hardware, stack, catalog, text)
    reaches = f"reaches {show_rate(NETWORK * found.rate)} per node, with {found.latency:.3g} times NCCL's usual latency"
    print(f"The network, as {found.cell} measured it, {reaches}.\n")
    return found


def model_of(arguments: argparse.Namespace, catalog: Catalog) -> Planned:
    """The model with the lengths of the options. Raises UsageError, and Refused for one that it cannot have."""
    found = planned(arguments.model, catalog, numbers_of(arguments.shape))
    return found.with_lengths(arguments.sequence_length, arguments.target_length)


def _sought(arguments: argparse.Namespace) -> bool:
    """Whether a number of nodes is sought."""
    return arguments.seek == "nodes" or bool(arguments.deadline)


def _suits(one: Plan, days: float) -> bool:
    """Whether any layout fits, and the upper end of the interval of the days is in time."""
    return bool(one.layouts) and one.days[2] <= days


def _plans(model: Planned, hardware: Hardware, wish: Wish, arguments: argparse.Namespace, days: float) -> list[Plan]:
    """The plans by their number of nodes: of the hardware alone, or of its halves, too. ``days`` is the deadline.

    If the fewest nodes are sought, other numbers are tried too, since a number that divides layers and batch well may
    hold what a larger one does not. If it is memory that decides, or if no half suits, all from the fewest on; for a
    deadline, as a bisection finds them between the first half that suits and the one before.
    """

    def on(nodes: int) -> Plan:
        return plan(model, dataclasses.replace(hardware, nodes=nodes), wish)

    if not (_sought(arguments) or arguments.seek == "scaling"):
        return [plan(model, hardware, wish)]
    sizes = {hardware.nodes, *(2**power for power in range(hardware.nodes.bit_length()) if 2**power <= hardware.nodes)}
    found = {nodes: on(nodes) for nodes in sorted(sizes)}
    suits = next((nodes for nodes in found if _suits(found[nodes], days)), 0)
    if _sought(arguments) and (arguments.seek == "nodes" or not suits):
        for nodes in range(1, suits or hardware.nodes):
            found[nodes] = found.get(nodes) or on(nodes)
            if _suits(found[nodes], days):
                suits = nodes
                break
    elif arguments.deadline:
        late = max((nodes for nodes in found if nodes < suits), default=0)
        while suits - late > 1:
            middle = (late + suits) // 2
            found[middle] = on(middle)
            suits, late = (middle, late) if _suits(found[middle], days) else (suits, middle)
    return [found[nodes] for nodes in sorted(found) if nodes in sizes or nodes == suits]


def _largest(model: Planned, hardware: Hardware, wish: Wish, catalog: Catalog) -> Planned:
    """The largest model of the family that fits. Prints why each larger one does not. Raises Refused if none does."""
    family = [one for one in catalog.all("model").values() if one.family == model.family and model.family]
    if not family:
        raise Refused(f"--seek model looks in a family of the catalog, and {model.name} is in none.")
    smallest = ""
    for one in sorted(family, key=lambda one: -one.parameters):
        candidate = dataclasses.replace(of_model(one), sequence=model.sequence, target=model.target)
        found = plan(candidate, hardware, wish)
        if found.layouts:
            return candidate
        smallest = lacking(found)
        print(f"{one.name} does not fit: {smallest}.")
    raise Refused(f"No model of the family {model.family} fits on {hardware.name}: {smallest}.")
