"""Run by test_emulated_device_map.py on emulated GPUs: measures cells with faults; prints a JSON line for each.

    emulated_device_map.py FOLDER CELL[,FAULT…] …

``numbered`` writes the numbers of a cell into a file of its name in FOLDER.
"""

import json
import sys
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.run.runner import Runner, Settings


def numbered(session, trainer, meters):
    """Weights from a CPU's generator, by their names: a draw on an emulated GPU leaves zeros. Writes down the loss of
    each step, and how far the weights are from the first ones: a measurement on emulated GPUs has neither.
    """
    import torch

    first = {}
    with torch.no_grad():
        for name, parameter in trainer.model.named_parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            first[name] = 0.1 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(first[name])
    finished = trainer.finished

    def told(outcome):
        away = [
            float((one.detach().cpu() - first[name]).double().norm()) for name, one in trainer.model.named_parameters()
        ]
        with Path(session.job.import_path[0], session.job.cell).open("a", encoding="utf-8") as file:
            file.write(json.dumps([float(outcome.loss), away]) + "\n")
        return finished(outcome)

    trainer.finished = told


def moved(session, trainer, meters):
    """The first layer goes to the last device, without accelerate's knowledge."""
    from perfsuite.rank.blocks import blocks

    blocks(trainer.model)[0].to(session.devices[-1])


def together(session, trainer, meters):
    """All layers lie on the first device, and train there."""
    from accelerate.hooks import remove_hook_from_module

    remove_hook_from_module(trainer.model, recurse=True)
    trainer.model.to(session.device)


def leaks_on_the_last(session, trainer, meters):
    """Every step leaves 4 KB on the last device."""
    import torch

    kept, step = [], trainer.step

    def leaking(batch):
        kept.append(torch.ones(1000, device=session.devices[-1]))
        return step(batch)

    trainer.step = leaking


def last_is_small(session, trainer, meters):
    """The last device has 4 MiB for tensors."""
    session.memory.source.each[-1].set_capacity(4 * 2**20)


def allocates_on(number, size):
    """A fault that allocates so many bytes on a device in every forward, and frees them."""

    def fault(session, trainer, meters):
        import torch

        def listen(phase):
            if phase == "forward":
                torch.empty(size, dtype=torch.uint8, device=session.devices[number])

        session.phases.listen(listen)

    return fault


full_first, full_last = allocates_on(0, 64 * 2**20), allocates_on(1, 64 * 2**20)


def main():
    catalog = Catalog()
    settings = Settings(steps=2, warmup=1, import_path=(sys.argv[1], str(Path(__file__).parent)))
    with closing(Runner(catalog, settings)) as runner:
        for words in sys.argv[2:]:
            cell, *faults = words.split(",")
            made = runner.measure(
                replace(parse_cell(cell, catalog), faults=tuple(f"emulated_device_map:{one}" for one in faults))
            )
            failure = made.failure
            said = {
                "outcome": made.outcome,
                "message": failure and failure.message,
                "parts": failure and failure.parts,
                "engine": made.engine,
                "gpus": len(made.machine.gpus),
                "ranks": made.world_size,
                "readings": {name: [one.value, one.ranks, one.parts] for name, one in made.readings.items()},
            }
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
