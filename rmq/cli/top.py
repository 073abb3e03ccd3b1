"""`rmq top`: problems, groups and topics of running brokers, again and again.

A broker of rmq tells all of it with one request; one of Java's does not know it, and is
asked for what it tells, see `rmq/broker/watch/java_broker.py`.
"""

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from rmq.cli.failures import end
from rmq.cli.frame import GROUP_SORTS, Choice, Rates, frame, merged, rates
from rmq.cli.screen import Screen
from rmq.cli.table import Table
from rmq.cli.text import clock, harmless_json
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.client.admin import MASTER, AdminClient, BrokerAddress
from rmq.clock import SystemClock
from rmq.errors import RmqError
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import OwnRequestCode, ResponseCode

if TYPE_CHECKING:
    from rmq.broker.watch.java_broker import JavaBroker

ROWS: Final = 100
"""Groups and topics that a broker is asked for."""

COLUMNS: Final = ("group", "behind", "waitsMs", "outPerSecond", "clients", "why")

State = dict[str, Any]


class NoMaster(RmqError):
    """The name server knows no master."""


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


class Looking:
    """Whom to ask, and what the brokers of Java have told before."""

    def __init__(self, admin: AdminClient, broker: str | None) -> None:
        self._admin, self._broker = admin, broker
        self._of_java: dict[str, JavaBroker] = {}

    def look(self) -> list[State]:
        """Ask the brokers for their overviews; NoMaster if there is none."""
        asked = [BrokerAddress("", self._broker or "", MASTER, self._broker or "")]
        if self._broker is None:
            asked = self._admin.masters()
        if not asked:
            names = ", ".join(self._admin.name_servers)
            raise NoMaster(f"{names} knows no master")
        return [self._overview(each) for each in asked]

    def _overview(self, broker: BrokerAddress) -> State:
        told = self._of_java.get(broker.address)
        if told is None:
            fields = {"view": "overview", "n": str(ROWS)}
            try:
                code = OwnRequestCode.GET_VIEW
                own: State = self._admin.value(broker.address, code, fields)
            except AnswerRefused as refusal:
                if refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
            else:
                return own
            # imported on use: most clusters have no broker of Java
            from rmq.broker.watch.java_broker import JavaBroker

            told = JavaBroker(broker.name, broker.cluster, SystemClock().now_ms)
            self._of_java[broker.address] = told
        questions = told.questions()
        try:
            question = next(questions)
            while True:
                question = questions.send(self._body(broker.address, *question))
        except StopIteration:
            return told.overview()

    def _body(self, address: str, code: int, fields: dict[str, str]) -> bytes | None:
        try:
            return self._admin.ask(address, code, fields).body
        except AnswerRefused:
            return None


def _print(
    admin: AdminClient, broker: str | None, delay: float, *, once: bool, as_json: bool
) -> None:
    """Print a table, or an object, a look."""
    looking = Looking(admin, broker)
    while True:
        states = looking.look()
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
        self._looking, self._delay = Looking(admin, broker), delay
        self._states = self._looking.look()
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
            now = self._looking.look()
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
