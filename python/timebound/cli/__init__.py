"""The command line: one file per verb. It knows the API and nothing below it."""

from timebound.cli.app import main

__all__ = ["main"]
