"""The common part of the verbs that ask servers, and helpers of several verbs."""

import sys
from collections.abc import Callable

import click

from rmq.cli.admin.base import Function, make_command
from rmq.cli.nouns.catalogue import NOUNS
from rmq.cli.nouns.command import verbs


def register_verb(
    noun: str, verb: str, more: str = ""
) -> Callable[[Function], Function]:
    """Register a function as a verb; `more` is a paragraph of its help."""

    def register(function: Function) -> Function:
        text = NOUNS[noun][verb] + (f"\n\n{more}" if more else "")
        verbs[noun, verb] = make_command(verb, function, text)
        return function

    return register


yes_option = click.option(
    "-y", "--yes", "is_sure", is_flag=True, help="Do not ask first."
)


def confirm_deletion(sentence: str, *, is_sure: bool) -> None:
    """Ask a person for a confirmation; scripts are not asked."""
    if not is_sure and sys.stdin.isatty():
        click.confirm(sentence, abort=True, err=True)
