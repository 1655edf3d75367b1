"""One file per subcommand of ``perfsuite``; a file defines ``COMMAND``. Files with an underscore are helpers."""
