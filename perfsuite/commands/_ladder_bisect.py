import argparse

NAME = "bisect"
HELP = "x"


def arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(arguments: argparse.Namespace) -> int:
    return 0
