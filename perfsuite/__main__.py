"""``python -m perfsuite``: the command, of the environment whose Python it is."""

from perfsuite.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
