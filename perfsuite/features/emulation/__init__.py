"""Emulated GPUs: the CUDA build of torch runs, unmodified, over stand-ins for NVIDIA's libraries.

``sources/`` is their C++, ``compile.py`` compiles them for the installed torch, and ``running.py`` runs a command over
them. Nothing else in the package imports this room, except the command: a rank knows from its device's name that the
device is emulated (perfsuite/records/measurement.py).
"""
