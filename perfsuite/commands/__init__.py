"""One file or folder per subcommand of ``perfsuite``, with its name. Those with an underscore are helpers.

``HELP`` is its sentence. ``arguments`` adds the options to the parser. ``run`` returns the exit code or raises
PerfsuiteError; a command with actions sets a ``run`` for each instead. With ``STARTS_PROCESSES`` it starts ranks or
traces, which only Linux can.
"""
