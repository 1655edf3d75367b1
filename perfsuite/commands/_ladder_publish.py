import argparse

NAME = "publish"
HELP = "x"


def arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(arguments: argparse.Namespace) -> int:
    return 0
