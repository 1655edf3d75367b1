"""The step time of a training on absent hardware, in closed form. Everything here is predicted; nothing imports torch.

``costs.py``, ``communication.py`` and ``pipeline.py`` have one small function per physical cost; ``layer.py`` adds them
up for a layer, ``step.py`` for a step of a Shape, a Setup and a Machine. ``constants.py`` has what was fitted or
published, and ``software.toml`` what each software does. ``counted.py`` predicts small models on a CPU from what they
count.
"""
