"""Watching: `rmq top` on a terminal, a loop of asking, drawing and keys."""

import time
from collections.abc import Sequence
from typing import Any, Final

from rmq.cli.terminal.screen import Screen
from rmq.cli.terminal.text import clock
from rmq.cli.top.page import HELP, page
from rmq.cli.top.poller import ROWS, Looking, State
from rmq.cli.top.render import (
    Choice,
    Picture,
    Rates,
    Row,
    broker_rows,
    frame,
    rates,
    sorts,
)
from rmq.cli.top.trend import Trends
from rmq.core.errors import RmqError

DELAYS_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
MAX_FILTER: Final = 64
VIEWS: Final = {"g": "groups", "t": "topics", "c": "clients", "b": "brokers"}
KINDS: Final = {"groups": "group", "topics": "topic", "clients": "group"}
"""What Enter opens in each view."""


class Watching:
    """What the user sees and has chosen."""

    def __init__(self, looking: Looking, delay_s: float) -> None:
        self._looking, self._delay_s = looking, delay_s
        self._choice = Choice()
        self._trends = Trends()
        self._states: list[State] = []
        self._rates = Rates()
        self._rows: Sequence[Row] = []
        self._opened: tuple[str, str] | None = None
        self._page: list[str] = []
        self._top = 0
        """The first line of the page that is shown."""

        self._names: list[str] = []
        self._is_paused = self._is_typing = self._is_helping = False
        self._lost = ""
        self._ask()

    def run(self) -> None:
        """Look and draw until q."""
        with Screen() as screen:
            next_s = time.monotonic() + self._delay_s
            while True:
                size = screen.size()
                # each row costs the broker; a filter looks at as many as there may be
                self._looking.rows = ROWS if self._choice.filter else min(ROWS, size[1])
                picture = self.picture(size)
                screen.draw(picture.lines, picture.styles, size)
                keys = screen.keys(next_s - time.monotonic())
                if not all(self.press(key) for key in keys):
                    return
                if time.monotonic() >= next_s:
                    next_s = time.monotonic() + self._delay_s
                    if not self._is_paused:
                        self.look()

    def look(self) -> None:
        """Ask again; keep the last state while nobody answers."""
        try:
            self._ask()
        except RmqError:
            self._lost = f"no answer since {clock(self._states[0]['now'])[:8]}"
        else:
            self._lost = ""

    def _ask(self) -> None:
        now = self._looking.look()
        self._rates = rates(self._states, now)
        before, self._states = self._states, now
        behind = [(row["name"], row["lag"]) for each in now for row in each["groups"]]
        self._trends.add(max(each["now"] for each in now), behind)
        if self._choice.view == "clients":
            fields = {"n": str(ROWS), "q": self._choice.filter}
            views = self._looking.views("clients", **fields)
            self._rows = [row for view in views for row in view["rows"]]
        elif self._choice.view == "brokers":
            self._rows = broker_rows(before, now)
        if self._opened is not None:
            kind, name = self._opened
            self._page = page(kind, name, self._looking.views(kind, name=name))

    # -- what is shown

    def picture(self, size: tuple[int, int]) -> Picture:
        """Return what is to be drawn."""
        width, height = size
        if self._is_helping or self._opened:
            lines = list(HELP) if self._is_helping else self._page
            self._top = max(0, min(self._top, len(lines) - height + 1))
            shown = [line[:width] for line in lines[self._top :][: height - 1]]
            shown += [""] * (height - 1 - len(shown))
            foot = self._note() or "j k more  q back"
            return Picture([*shown, foot[:width]], {0: "head"}, [])
        found = frame(
            self._states,
            self._rates,
            self._choice,
            size=size,
            rows=self._rows,
            trends=self._trends.texts(),
            period_s=self._delay_s,
            note=self._note(),
        )
        self._names = found.names
        if self._lost:
            return found._replace(styles=dict.fromkeys(range(height - 1), "dim"))
        return found

    def _note(self) -> str:
        if self._is_typing:
            return f"filter: {self._choice.filter}_"
        if self._lost:
            return self._lost
        return "paused" if self._is_paused else ""

    # -- keys

    def press(self, key: str) -> bool:
        """Follow a key; False ends the command."""
        if key == "gone":
            return False
        if self._is_typing:
            self._type(key)
        elif self._is_helping or self._opened:
            self._press_on_page(key)
        elif key == "q":
            return False
        else:
            self._press_on_list(key)
        return True

    def _type(self, key: str) -> None:
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
            self._top += 1
        elif key in ("k", "up"):
            self._top -= 1
        elif key == " ":
            self._is_paused = not self._is_paused

    def _press_on_list(self, key: str) -> None:
        choice = self._choice
        if key in VIEWS:
            view: Any = VIEWS[key]
            self._choice = Choice(view, sorts(view)[0], filter=choice.filter)
            self.look()
        elif key in ("<", ">"):
            known = sorts(choice.view)
            at = known.index(choice.sort) + (1 if key == ">" else -1)
            self._choice = choice._replace(sort=known[at % len(known)])
        elif key == "r":
            self._choice = choice._replace(is_up=not choice.is_up)
        elif key in ("j", "down", "k", "up"):
            step = 1 if key in ("j", "down") else -1
            most = max(0, len(self._names) - 1)
            self._choice = choice._replace(at=min(max(choice.at + step, 0), most))
        elif key in "\r\n" and choice.view in KINDS and self._names:
            name = self._names[min(choice.at, len(self._names) - 1)]
            self._opened, self._top = (KINDS[choice.view], name), 0
            self._page = []
            self.look()
        elif key == " ":
            self._is_paused = not self._is_paused
        elif key == "d":
            later = [each for each in DELAYS_S if each > self._delay_s]
            self._delay_s = later[0] if later else DELAYS_S[0]
        elif key == "?":
            self._is_helping, self._top = True, 0
        elif key == "/":
            self._is_typing = True
            self._choice = choice._replace(filter="", at=0)
