"""Every setting, once: its name, what it takes, its default, its limits and its meaning.

pytest's options, the keys of pytest's ini, the options that commands share and the reference pages are made from it.
An *option* is for one run (options.py). A *key* is for a project, in pytest's ini, which the commands read too
(keys.py). pytest itself turns one into the other: ``addopts`` in the ini has options for every run, and
``-o key=value`` is a key for one run.

Plain pytest imports this room, so it imports nothing slow.
"""
