"""Checks the arguments of `python -m xgrad`'s commands; `needs` imports the packages that a command needs."""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..base.devices import device, placement_of


def at_least(least: int) -> Callable[[str], int]:
    """Return a parser of integers that rejects integers below `least`."""

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, but got {value}")
        return value

    return integer


def place(text: str) -> device:
    """Return the device that `text` names; raise ArgumentTypeError unless JAX sees it."""
    try:
        placement_of(text)
        return device(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def needs(parser: argparse.ArgumentParser, extra: str, *modules: str) -> list[Any]:
    """Import the modules and return them; if one is missing, print what to install and exit with code 2."""
    found = []
    for name in modules:
        try:
            found.append(import_module(name))
        except ImportError as error:
            parser.error(f'{error.name or name} is not installed; pip install "xgrad[{extra}]"')
    return found
