"""`rmq top`: problems, groups and topics of running brokers, again and again."""

import sys
import time
from typing import Any, Final

import click

from rmq.cli.failures import end
from rmq.cli.frame import GROUP_SORTS, Choice, Rates, frame, merged, rates
from rmq.cli.screen import Screen
from rmq.cli.table import Table
from rmq.cli.text import clock, harmless_json
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.client.admin import AdminClient
from rmq.errors import RmqError
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import OwnRequestCode, ResponseCode

ROWS: Final = 100
"""Groups and topics that a broker is asked for."""

COLUMNS: Final = ("group", "behind", "waitsMs", "outPerSecond", "clients", "why")

State = dict[str, Any]


class UnknownView(RmqError):
    """No broker that was asked knows views."""


@click.command()
@click.option(
    "-d", "--delay", type=click.FloatRange(0.2, 60), default=1.0, show_default=True,
    metavar="SECONDS", help="Pause between two looks.",
)  # fmt: skip
@click.option("-b", "--broker", metavar="HOST:PORT", help="Only this broker.")
@click.option("--once", is_flag=True, help="One table, then end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a look.")
@with_settings
def top(
    settings: ToolSettings,
    delay: float,
    broker: str | None,
    *,
    once: bool,
    as_json: bool,
) -> None:
    """Show what is wrong, and the groups and topics with the most to do.

    \b
    rmq top                     all masters that the name server knows
    rmq top --once              one table, for scripts
    rmq top --once --json       the same as JSON

    Keys: g t groups or topics first, < > sort, r turn, / filter, space pause, q quit.
    """  # noqa: D301 - click wants the character itself
    try:
        with settings.admin() as admin:
            if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
                _print(admin, broker, delay, once=once, as_json=as_json)
            else:
                _Watching(admin, broker, delay).run()
    except RmqError as error:
        end(error)
    except KeyboardInterrupt:
        return


def look(admin: AdminClient, broker: str | None) -> list[State]:
    """Ask the brokers for their overviews; UnknownView if they are Java's."""
    asked = [broker] if broker else [each.address for each in admin.masters()]
    found, unknown = [], []
    for address in asked:
        fields = {"view": "overview", "n": str(ROWS)}
        try:
            found.append(admin.value(address, OwnRequestCode.GET_VIEW, fields))
        except AnswerRefused as refusal:
            if refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            unknown.append(address)
    if not found:
        names = ", ".join(unknown) or "nobody"
        raise UnknownView(
            f"{names} cannot tell what rmq top shows: it needs brokers of rmq. rmq "
            "admin consumerProgress asks those of Java"
        )
    return found


def _print(
    admin: AdminClient, broker: str | None, delay: float, *, once: bool, as_json: bool
) -> None:
    """Print a table, or an object, a look."""
    while True:
        states = look(admin, broker)
        if as_json:
            click.echo(harmless_json(states))
        else:
            rows = sorted(merged(states, "groups"), key=lambda row: -row["lag"])
            cells = [
                (r["name"], r["lag"], r["waits_ms"], r["out"], r["clients"], r["say"])
                for r in rows
            ]
            click.echo("\n".join(Table(COLUMNS, cells).for_pipe()))
        sys.stdout.flush()
        if once:
            return
        time.sleep(delay)


class _Watching:
    """The loop on a terminal."""

    def __init__(self, admin: AdminClient, broker: str | None, delay: float) -> None:
        self._admin, self._broker, self._delay = admin, broker, delay
        self._states = look(admin, broker)
        self._rates = Rates()
        self._choice = Choice()
        self._is_paused = self._is_typing = False
        self._lost = ""

    def run(self) -> None:
        """Look and draw until q."""
        with Screen() as screen:
            next_s = time.monotonic() + self._delay
            while True:
                size = screen.size()
                note = self._note()
                lines = frame(
                    self._states, self._rates, self._choice, size=size, note=note
                )
                screen.draw(lines, size)
                keys = screen.keys(next_s - time.monotonic())
                if not all(self._press(key) for key in keys):
                    return
                if time.monotonic() >= next_s:
                    next_s = time.monotonic() + self._delay
                    if not self._is_paused:
                        self._look()

    def _note(self) -> str:
        if self._is_typing:
            return f"filter: {self._choice.filter}_"
        if self._lost:
            return self._lost
        return "paused" if self._is_paused else ""

    def _look(self) -> None:
        """Ask again; keep the last state while nobody answers."""
        try:
            now = look(self._admin, self._broker)
        except RmqError:
            self._lost = f"no answer since {clock(self._states[0]['now'])[:8]}"
            return
        self._lost = ""
        self._rates = rates(self._states, now)
        self._states = now

    def _press(self, key: str) -> bool:
        """Follow a key; False ends the command."""
        choice = self._choice
        if self._is_typing:
            if key in "\r\n\x1b":
                self._is_typing = False
            elif key in "\x7f\b":
                self._choice = choice._replace(filter=choice.filter[:-1])
            elif key.isprintable() and len(choice.filter) < 64:
                self._choice = choice._replace(filter=choice.filter + key)
            return True
        at = GROUP_SORTS.index(choice.sort)
        if key in "<>":
            step = 1 if key == ">" else -1
            sort = GROUP_SORTS[(at + step) % len(GROUP_SORTS)]
            self._choice = choice._replace(sort=sort)
        elif key == "r":
            self._choice = choice._replace(is_up=not choice.is_up)
        elif key in "gt":
            self._choice = choice._replace(topics_first=key == "t")
        elif key == " ":
            self._is_paused = not self._is_paused
        elif key == "/":
            self._is_typing = True
            self._choice = choice._replace(filter="")
        return key != "q"
