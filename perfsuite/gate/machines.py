"""Whether two records come from one machine. Only then can their times be compared."""

from perfsuite.records.measurement import Machine


def why_other_machine(recorded: Machine, here: Machine) -> str:
    """How the machine differs from the recorded one; empty if it is the same. A driver counts, since its kernels are
    another library; a CPU has none.
    """
    if recorded.device == here.device and recorded.gpus and here.gpus and recorded.identity != here.identity:
        return f"recorded on other GPUs ({_gpus(recorded)}), here: {_gpus(here)}"
    if recorded.identity != here.identity or recorded.device != here.device:
        return f"recorded on another machine ({recorded.device}, {recorded.cores} cores, {recorded.identity})"
    if recorded.driver != here.driver:
        return f"recorded with driver {recorded.driver or 'none'}, here is {here.driver or 'none'}"
    return ""


def _gpus(machine: Machine) -> str:
    """``GPU-8932f937 and GPU-01aa77c3 by NV18``."""
    links = "/".join(dict.fromkeys(machine.links.values()))
    return " and ".join(machine.gpus) + (f" by {links}" if links else "")
