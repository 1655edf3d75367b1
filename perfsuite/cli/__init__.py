"""The command line. Each room has its subcommands in ``commands/``: a file or folder each, with the command's name.

``HELP`` is its sentence, and ``QUESTION`` the group of `perfsuite --help` that lists it (command_files.py).
``arguments`` adds the options to the parser. ``run`` returns the exit code or raises PerfsuiteError; a command with
actions sets a ``run`` for each instead. With ``STARTS_PROCESSES`` it starts ranks or traces, which only Linux can.
"""
