"""Queries of views: parse them, filter, sort and shorten lists, and let other tasks
run.

RequestRejected names the error in a query.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from rmq import __version__
from rmq.core.errors import RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.remoting.turns import TurnTaker

if TYPE_CHECKING:
    from rmq.observe.broker_view import BrokerView

MAX_ROWS: Final = 200
DEFAULT_ROWS: Final = 60
MAX_TEXT: Final = 255
"""Maximum characters of a query's text."""

MAX_DIGITS: Final = 18
"""Maximum digits of a number, so that it fits into 64 bits."""

NEAR_AMONG: Final = 2_000
"""Maximum number of names among which a similar name is searched."""

NAMES_AT_ONCE: Final = 64
"""Number of names of a list that are checked between two reads of the clock."""

MAX_START: Final = 1_000_000
SORTED_AT_ONCE: Final = 1_000
"""Number of names that are sorted between two reads of the clock: 0.3 ms."""

Query = Mapping[str, str]
Row = dict[str, Any]
Require = Callable[[str], object]
"""Raises RequestRejected unless the user of the query may read this topic."""


class ListOrder(NamedTuple):
    """The first names of a sorted list, and the number of all names, at one time."""

    at_ms: int
    wanted: int
    names: list[str]
    total: int
    due: float | None = None
    """Messages per second to all groups if no group lagged; only for topics."""


def view_head(broker: "BrokerView") -> dict[str, Any]:
    """Return the first members of every view."""
    config = broker.config
    return {
        "now": broker.clock.now_ms(),
        "node": config.broker_name,
        "cluster": config.broker_cluster_name,
        "version": __version__,
        "up_ms": max(0, broker.clock.now_ms() - broker.boot_ms),
    }


class ListQuery:
    """The filter, the order and the part of a list."""

    def __init__(self, query: Query, sorts: tuple[str, ...]) -> None:
        self._text = query.get("q", "")[:MAX_TEXT].lower()
        self.sort = query.get("sort") or sorts[0]
        if self.sort not in sorts:
            raise bad_query(f"sort={self.sort[:20]} is not one of {', '.join(sorts)}")
        is_text = self.sort in ("name", "group", "client")
        self._is_text = is_text
        self._is_up = (query.get("up") == "1") != is_text
        self.system = query.get("system") == "1"
        self.start = number_of(query, "from", 0, MAX_START)
        self._count = number_of(query, "n", DEFAULT_ROWS, MAX_ROWS)

    def matches(self, name: str) -> bool:
        """Whether the text is a part of a name."""
        return not self._text or self._text in name.lower()

    async def select(self, found: list[tuple[Any, Any]], turns: TurnTaker) -> list[Any]:
        """Return the wanted part in the wanted order.

        In a large broker most names have the amount zero; these are not sorted.
        """
        stop = self.start + self._count
        if self._is_text:
            return [
                each
                for _, each in (await self._order_first(found, turns))[self.start :]
            ]
        ordered = await self._order_first([pair for pair in found if pair[0]], turns)
        idle = [pair for pair in found if not pair[0]]
        if self._is_up:
            ordered = idle[:stop] + ordered
        else:
            ordered += idle[: max(0, stop - len(ordered))]
        return [each for _, each in ordered[self.start : stop]]

    async def _order_first(
        self, found: list[tuple[Any, Any]], turns: TurnTaker
    ) -> list[tuple[Any, Any]]:
        """Return the sorted names of a list, up to the end of the wanted part."""
        stop = self.start + self._count
        choose = heapq.nsmallest if self._is_up else heapq.nlargest
        runs = []
        for at in range(0, len(found), SORTED_AT_ONCE):
            runs.append(choose(stop, found[at : at + SORTED_AT_ONCE]))
            await turns()
        merged = islice(heapq.merge(*runs, reverse=not self._is_up), stop)
        ordered: list[tuple[Any, Any]] = []
        while part := list(islice(merged, SORTED_AT_ONCE)):
            ordered += part
            await turns()
        return ordered


class Listing(NamedTuple):
    """A part of a list of names."""

    total: int
    found: int
    """Number of names that match the query."""

    names: list[str]


async def list_names(
    wanted: ListQuery,
    names: Iterable[str],
    is_internal: Callable[[str], bool],
    sort_key: Callable[[str], float | str],
    turns: TurnTaker,
) -> Listing:
    """Return the names that a query selects, in its order."""
    found: list[tuple[Any, str]] = []
    total = 0
    for number, name in enumerate(names):
        if number % NAMES_AT_ONCE == 0:
            await turns()
        if not wanted.system and is_internal(name):
            continue
        total += 1
        if wanted.matches(name):
            found.append((sort_key(name), name))
    return Listing(total, len(found), await wanted.select(found, turns))


def round_rate(rate: float) -> float:
    """Return a rate as views show it."""
    return round(rate, 1)


def number_of(query: Query, name: str, default: int, most: int) -> int:
    """Return a number of the query, at most `most`."""
    text = query.get(name) or str(default)
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise bad_query(f"{name}={text[:20]} is not a number")
    return min(int(text), most)


def large_number_of(query: Query, name: str) -> int | None:
    """Return an offset, a time or a number of an event; None if it is not given."""
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > MAX_DIGITS:
        raise bad_query(f"{name}={text[:20]} is not a number")
    return int(text)


def name_of(query: Query) -> str:
    """Return the name that the query is about."""
    name = query.get("name", "")
    if not 0 < len(name) <= MAX_TEXT:
        raise bad_query("name is missing, or longer than 255 characters")
    return name


def bad_query(reason: str) -> RequestRejected:
    """Return the error for a query with a mistake."""
    return RequestRejected(ResponseCode.INVALID_PARAMETER, reason)


def raise_unknown(what: str, name: str, names: Any) -> NoReturn:  # noqa: ANN401 - iterable
    """Raise RequestRejected: there is no such name; it suggests a similar one."""
    # imported on use: it is large, and a broker may never be asked
    from difflib import get_close_matches

    near = get_close_matches(name, list(islice(names, NEAR_AMONG)), 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise RequestRejected(
        ResponseCode.QUERY_NOT_FOUND, f"no {what} is called {name}{hint}"
    )
