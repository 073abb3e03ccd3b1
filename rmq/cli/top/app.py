"""`rmq top` on a terminal: a loop that polls, draws and reads keys."""

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from rmq.cli.terminal.screen import TerminalScreen
from rmq.cli.terminal.text import time_of_day
from rmq.cli.top.columns import Choice, sort_keys
from rmq.cli.top.overview import (
    ClientRow,
    Overview,
    Rates,
    Row,
    broker_rows,
    compute_rates,
)
from rmq.cli.top.page import HELP, GroupView, TopicView, group_page, topic_page
from rmq.cli.top.poller import MAX_ROWS, Poller
from rmq.cli.top.render import Screen, render_screen
from rmq.cli.top.trend import Trends
from rmq.core.errors import RmqError

DELAYS_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
MAX_FILTER: Final = 64
VIEWS: Final = {"g": "groups", "t": "topics", "c": "clients", "b": "brokers"}
PAGES: Final = {"groups": "group", "topics": "topic", "clients": "group"}
"""The kind of page that Enter opens in each view."""


class ClientsView(msgspec.Struct):
    """The view `clients` of one broker."""

    rows: list[ClientRow]


class App:
    """State of the screen: answers of brokers, and the user's choices."""

    def __init__(self, poller: Poller, delay_s: float) -> None:
        self._poller, self._delay_s = poller, delay_s
        self._choice = Choice()
        self._trends = Trends()
        self._states: list[Overview] = []
        self._rates = Rates()
        self._rows: Sequence[Row] = []
        self._opened: tuple[str, str] | None = None
        self._page: list[str] = []
        self._page_top = 0
        """Number of the first visible line of the page."""

        self._names: list[str] = []
        self._is_paused = self._is_typing = self._is_helping = False
        self._failure = ""
        self._fetch()

    def run(self) -> None:
        """Poll and draw until q."""
        with TerminalScreen() as terminal:
            next_s = time.monotonic() + self._delay_s
            while True:
                size = terminal.size()
                # each row costs the broker time; a filter needs all rows
                limit = MAX_ROWS if self._choice.filter else min(MAX_ROWS, size[1])
                self._poller.row_limit = limit
                screen = self.render_screen(size)
                terminal.draw_lines(screen.lines, screen.styles, size)
                keys = terminal.read_keys(next_s - time.monotonic())
                if not all(self.press_key(key) for key in keys):
                    return
                if time.monotonic() >= next_s:
                    next_s = time.monotonic() + self._delay_s
                    if not self._is_paused:
                        self.refresh()

    def refresh(self) -> None:
        """Poll; without an answer the last state stays on the screen."""
        try:
            self._fetch()
        except RmqError:
            since = time_of_day(self._states[0].now_ms)[:8]
            self._failure = f"no answer since {since}"
        else:
            self._failure = ""

    def _fetch(self) -> None:
        before, self._states = self._states, self._poller.poll()
        self._rates = compute_rates(before, self._states)
        self._trends.add(
            max(state.now_ms for state in self._states),
            [(row.name, row.lag) for state in self._states for row in state.groups],
        )
        if self._choice.view == "clients":
            fields = {"n": str(MAX_ROWS), "q": self._choice.filter}
            views = self._poller.fetch_views("clients", ClientsView, **fields)
            self._rows = [row for view in views for row in view.rows]
        elif self._choice.view == "brokers":
            self._rows = broker_rows(before, self._states)
        if self._opened is not None:
            self._page = self._fetch_page(*self._opened)

    def _fetch_page(self, kind: str, name: str) -> list[str]:
        if kind == "group":
            groups = self._poller.fetch_views(kind, GroupView, name=name)
            return group_page(name, groups)
        return topic_page(name, self._poller.fetch_views(kind, TopicView, name=name))

    # -- the screen

    def render_screen(self, size: tuple[int, int]) -> Screen:
        """Return the screen for a terminal of this size."""
        width, height = size
        if self._is_helping or self._opened:
            lines = list(HELP) if self._is_helping else self._page
            self._page_top = max(0, min(self._page_top, len(lines) - height + 1))
            shown = [line[:width] for line in lines[self._page_top :][: height - 1]]
            shown += [""] * (height - 1 - len(shown))
            foot = self._status() or "j k more  q back"
            return Screen([*shown, foot[:width]], {0: "head"}, [])
        screen = render_screen(
            self._states,
            self._rates,
            self._choice,
            size=size,
            rows=self._rows,
            trends=self._trends.render_all(),
            period_s=self._delay_s,
            status=self._status(),
        )
        self._names = screen.names
        if self._failure:
            return screen._replace(styles=dict.fromkeys(range(height - 1), "dim"))
        return screen

    def _status(self) -> str:
        if self._is_typing:
            return f"filter: {self._choice.filter}_"
        return self._failure or ("paused" if self._is_paused else "")

    # -- keys

    def press_key(self, key: str) -> bool:
        """Handle a key; False ends the command."""
        if key == "gone":
            return False
        if self._is_typing:
            self._type_filter(key)
        elif self._is_helping or self._opened:
            self._press_on_page(key)
        elif key == "q":
            return False
        else:
            self._press_on_list(key)
        return True

    def _type_filter(self, key: str) -> None:
        choice = self._choice
        if key in "\r\n\x1b":
            self._is_typing = False
        elif key in "\x7f\b":
            self._choice = choice._replace(filter=choice.filter[:-1])
        elif len(key) == 1 and key.isprintable() and len(choice.filter) < MAX_FILTER:
            self._choice = choice._replace(filter=choice.filter + key)

    def _press_on_page(self, key: str) -> None:
        if key in ("q", "\x1b", "?"):
            self._is_helping, self._opened = False, None
        elif key in ("j", "down"):
            self._page_top += 1
        elif key in ("k", "up"):
            self._page_top -= 1
        elif key == " ":
            self._is_paused = not self._is_paused

    def _press_on_list(self, key: str) -> None:
        choice = self._choice
        if key in VIEWS:
            view: Any = VIEWS[key]
            self._choice = Choice(view, sort_keys(view)[0], filter=choice.filter)
            self._rows = []
            self.refresh()
        elif key in ("<", ">"):
            keys = sort_keys(choice.view)
            at = keys.index(choice.sort) + (1 if key == ">" else -1)
            self._choice = choice._replace(sort=keys[at % len(keys)])
        elif key == "r":
            self._choice = choice._replace(is_ascending=not choice.is_ascending)
        elif key in ("j", "down", "k", "up"):
            step = 1 if key in ("j", "down") else -1
            most = max(0, len(self._names) - 1)
            self._choice = choice._replace(at=min(max(choice.at + step, 0), most))
        elif key in "\r\n" and choice.view in PAGES and self._names:
            name = self._names[min(choice.at, len(self._names) - 1)]
            self._opened, self._page_top = (PAGES[choice.view], name), 0
            self._page = []
            self.refresh()
        elif key == " ":
            self._is_paused = not self._is_paused
        elif key == "d":
            longer = [each for each in DELAYS_S if each > self._delay_s]
            self._delay_s = longer[0] if longer else DELAYS_S[0]
        elif key == "?":
            self._is_helping, self._page_top = True, 0
        elif key == "/":
            self._is_typing = True
            self._choice = choice._replace(filter="", at=0)
