"""The names of the plugin's fixture and settings. Imports nothing, since plain pytest imports it with the plugin."""

UPDATES = ("new", "regressed", "improved", "times", "all")
TRIALS = ("auto", "always", "never")
FIXTURE = "perf_cell"
SETTINGS: tuple[tuple[str, type, str], ...] = (
    ("hardware", str, "Comma-separated hardware for the grid's cells, e.g. cpu_x2,h200_x1, in place of their own."),
    ("steps", int, "Timed steps of a cell (10)."),
    ("launches", int, "Launches that a baseline is recorded from (3); its exact metrics must repeat themselves."),
    ("trial", str, "Try an alarm or a regression against the baseline's environment: auto (default), always or never."),
    ("open", str, "How a cell ends whose time cannot be decided: pass (default) or fail."),
    ("warmup", int, "Warm-up steps before them (5)."),
    ("capacity", str, "Memory that each rank's tensors may occupy, e.g. 24GiB; crossing it is an out-of-memory."),
    ("report", str, "Write every result as one line of JSON to this file."),
    ("snapshots", str, "Folder in which the memory snapshots of red cells on CUDA are kept."),
    ("kernels", str, "Instruction sets of a CPU's kernels: portable, the same on every x86-64 machine, or native."),
    ("time_tolerance", float, "Smallest relative slow-down that must not go unseen (0.03 on CPUs, 0.02 elsewhere)."),
    ("start_timeout", float, "Seconds that a rank may take without progress before its first step (300)."),
    ("step_timeout", float, "Seconds that a rank may take without progress from then on (120)."),
)
