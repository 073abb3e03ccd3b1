"""The verbs of `rmq context`: options of all commands, saved under a name."""

from collections.abc import Callable
from typing import Any

import click

from rmq.cli.admin.base import Output, Table, print_output
from rmq.cli.contexts import (
    Context,
    list_contexts,
    read_context,
    remove_context,
    save_context,
    use_context,
    used_context,
)
from rmq.cli.failures import exit_with_error
from rmq.cli.nouns.catalogue import NOUNS
from rmq.cli.nouns.command import verbs
from rmq.cli.tool_settings import complete_context
from rmq.core.errors import RmqError

SECRET = "…"
TLS_KEYS = frozenset({"tls", "ca", "tls_cert", "tls_key", "tls_name"})


def _register(verb: str) -> Callable[[Callable[..., Output]], Callable[..., Output]]:
    """Register a verb that asks no server."""

    def register(function: Callable[..., Output]) -> Callable[..., Output]:
        def run(*, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - one for each option
            try:
                shown = function(**options)
            except RmqError as error:
                exit_with_error(error)
            print_output(shown, as_json=as_json)

        own: list[click.Parameter] = getattr(function, "__click_params__", [])
        json_option = click.Option(
            ["--json", "as_json"], is_flag=True, help="Print JSON."
        )
        verbs["context", verb] = click.Command(
            verb,
            callback=run,
            params=[json_option, *reversed(own)],
            help=NOUNS["context"][verb],
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        return function

    return register


_name = click.argument("name", shell_complete=complete_context)


def _table(names: list[str]) -> Table:
    used = used_context()
    rows = []
    for each in names:
        values = read_context(each)
        has_tls = not TLS_KEYS.isdisjoint(values)
        shown = values.get("namesrv", ""), values.get("user", ""), has_tls
        rows.append(("*" if each == used else "", each, *shown))
    return Table(("used", "name", "namesrv", "user", "tls"), rows)


@_register("ls")
def show_contexts() -> Output:
    return _table(list_contexts())


@_register("add")
@click.argument("name")
@click.option("-n", "--namesrvAddr", "namesrv", metavar="HOST:PORT;…", required=True,
              help="Name servers.")  # fmt: skip
@click.option("--user", help="User.")
@click.option("--password-file", metavar="FILE", help="File with the password.")
@click.option("--tls", is_flag=True, help="Connect with TLS.")
@click.option("--ca", metavar="FILE", help="CA bundle (PEM) for servers.")
@click.option("--tls-cert", metavar="FILE", help="Client certificate (PEM).")
@click.option("--tls-key", metavar="FILE", help="Key (PEM) of the client certificate.")
@click.option("--tls-name", metavar="NAME", help="Name in server certificates.")
@click.option("--use", is_flag=True, help="Use this context from now on.")
def add_context(name: str, *, use: bool, **values: Any) -> Output:  # noqa: ANN401 - one for each option
    save_context(name, Context({key: each for key, each in values.items() if each}))
    if use:
        use_context(name)
    return _table([name])


@_register("use")
@_name
def choose_context(name: str) -> Output:
    use_context(name)
    return _table([name])


@_register("info")
@click.argument("name", required=False, shell_complete=complete_context)
def show_context(name: str | None) -> Output:
    chosen = name or used_context()
    if not chosen:
        raise click.UsageError("no context is in use: name one")
    values = read_context(chosen)
    if "password" in values:
        values["password"] = SECRET
    return {"name": chosen, **values}


@_register("rm")
@_name
def delete_context(name: str) -> Output:
    remove_context(name)
    return Table(("name", "state"), [(name, "deleted")])
