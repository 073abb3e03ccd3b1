"""Lead: whether this controller leads, and its copy of the groups.

Known in Java as `DLedgerController`.
A leader reads all groups after its term begins, and only a leader writes, so its copy
is the state of the engine. After a write without an answer it first reads the groups
again. Changes happen one after the other.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

import trio

from rmq.controller.engine import ABSENT, MAX_GROUPS, Engine, Stored, Term, View
from rmq.controller.groups import Act, Group, Outcome
from rmq.core.errors import EngineAway, RequestRejected, TermLost
from rmq.protocol.codes import ResponseCode

logger = logging.getLogger(__name__)

TRIES: Final = 3
"""Number of attempts of one change, because the last write of another leader may come
in between.
"""

NOT_LEADING: Final = "The controller is not in leader state"


class Lead:
    """The term of this controller, and the state that it may change in this term."""

    def __init__(self, engine: Engine, on_begin: Callable[[], None]) -> None:
        """`on_begin` is called when a term begins."""
        self.view = View()
        self._engine = engine
        self._on_begin = on_begin
        self._term: Term | None = None
        self._read_in: Term | None = None
        """The term in which `_groups` was read; None if `_groups` has to be read
        again.
        """
        self._groups: dict[str, Stored] = {}
        self._lock = trio.Lock()

    def set_term(self, term: Term | None) -> None:
        """Begin a term, or end it."""
        if term is not None:
            logger.info("this controller is the leader (term %d)", term.number)
            self._on_begin()
        elif self._term is not None:
            logger.warning("this controller is no longer the leader")
        self._term = term

    @property
    def is_leading(self) -> bool:
        """Whether no other controller can lead now."""
        return self._term is not None and trio.current_time() < self._term.until_s

    @property
    def groups(self) -> Mapping[str, Stored]:
        """The groups, as far as this controller knows them without asking."""
        is_read = self.is_leading and self._read_in is self._term
        return self._groups if is_read else self.view.groups

    def known_group(self, name: str) -> Group | None:
        """Return a group of `groups`."""
        stored = self.groups.get(name)
        return stored.group if stored else None

    async def group(self, name: str) -> Group | None:
        """Return the confirmed state of a group, which only a leader knows."""
        async with self._lock:
            await self._current_term()
            stored = self._groups.get(name)
            return stored.group if stored else None

    async def change_group(self, name: str, act: Act) -> Outcome:
        """Apply a function to a group; return when the engine has its result.

        RequestRejected if this controller does not lead, EngineAway if it is
        unknown whether the change was made.
        """
        async with self._lock:
            for _ in range(TRIES):
                term = await self._current_term()
                stored = self._groups.get(name)
                before = stored.group if stored else None
                outcome = act(before)
                if outcome.group == before:
                    return outcome
                self._check_room(name)
                if await self._write(name, outcome.group, stored, term):
                    return outcome
        raise EngineAway(f"another controller keeps changing group {name}")

    async def _write(
        self, name: str, group: Group | None, stored: Stored | None, term: Term
    ) -> bool:
        self._read_in = None
        try:
            revision = stored.revision if stored else ABSENT
            written = await self._engine.swap(name, group, revision, term)
        except TermLost as error:
            raise not_leading() from error
        if written is None:
            return False
        if group is None:
            del self._groups[name]
        else:
            self._groups[name] = Stored(group, written)
        self._read_in = term
        return True

    def _check_room(self, name: str) -> None:
        if name not in self._groups and len(self._groups) >= MAX_GROUPS:
            raise RequestRejected(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"{MAX_GROUPS} groups are registered, the limit",
            )

    async def _current_term(self) -> Term:
        """Return the term after its groups were read; RequestRejected if there is no
        term.
        """
        term = self._term
        if term is None or not self.is_leading:
            raise not_leading()
        if self._read_in is not term:
            view = await self._engine.load()
            if self._term is not term or not self.is_leading:
                raise not_leading()
            self._groups, self._read_in = view.groups, term
        return term


def not_leading() -> RequestRejected:
    """Return the refusal that names the leader to brokers and tools."""
    return RequestRejected(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADING)
