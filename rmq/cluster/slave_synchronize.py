"""SlaveSynchronizer: a slave copies tables from its master, in addition to the log.

Topics, groups and offsets are the broker's own; a plugin adds its tables with
`Register.copied_table`. Copying starts only when the log is proven to be a copy of the
master's log. If it started earlier, the slave would delete topics that a master of
another group lacks. The pause after each copy is 20 times its duration, so a large
table costs the master at most a twentieth of its time. If a table fails, the slave logs
it once and copies the other tables.

Offsets record finished work: deliveries, commits, retries. The master's log has the
records of that work before the offsets. A slave that got the offsets first and became
the master would never do the work. So the slave asks for the end of the master's log,
and applies the table when its own log has reached this end. Java does not send the end.
Known in Java as `SlaveSynchronize`, which starts after a minute.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine

import msgspec
import trio

from rmq.cluster.directory import Ask
from rmq.cluster.group_role import GroupRole
from rmq.core.errors import ConnectFailed, RmqError
from rmq.core.logs import Foreign
from rmq.plugin.registrations import Around
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import Answer, Handler, Later, Result
from rmq.store.commit_log import CommitLog

logger = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 30_000
LOG_END = "rmq.logEnd"
"""In an answer this field is the end of the master's log; in a request it asks for the
end.
"""

LOG_LIMIT_S = 30.0
LOG_PAUSE_S = 0.02
"""Time limit, and pause, of a slave that waits until its log has reached the master's
end.
"""

LEAST_PAUSE_S = 1.0
LARGEST_PAUSE_S = 60.0
COST_FACTOR = 20

Apply = Callable[[bytes], object]
"""Applies the body of the master's answer; RequestRejected if the body is invalid."""

ForwardCommits = Callable[[Ask, str], Awaitable[None]]
"""Forwards commits to the master at an address; PeerError if it does not answer."""


class CopiedTable(msgspec.Struct):
    """A table of the master, by the request that asks for it."""

    name: str
    code: int
    apply: Apply
    least_pause_s: float = LEAST_PAUSE_S
    forward: ForwardCommits | None = None
    follows_log: bool = True
    """Whether the table is the progress of work with records of the log."""

    asked_end: int = 0
    """End of the log at the request to the master: the answer covers all earlier
    records.
    """

    error: str = ""
    """Why the last attempt failed; empty after a success."""

    copies: int = 0


class SlaveSynchronizer:
    """All tables that a slave copies."""

    def __init__(
        self,
        role: GroupRole,
        ask: Ask,
        *,
        is_copy: Callable[[], bool],
        safe_offset: Callable[[], int],
    ) -> None:
        """It copies only while `is_copy` returns true: then the log is a copy of the
        master's log.

        `safe_offset` is as in `LogPositions`.
        """
        self.tables: list[CopiedTable] = []
        self._is_copy = is_copy
        self._safe_offset = safe_offset
        self._role = role
        self._ask = ask
        self._changed = trio.Event()
        role.on_change.append(self.copy_soon)

    def add(
        self,
        name: str,
        code: int,
        apply: Apply,
        least_pause_s: float = LEAST_PAUSE_S,
        forward: ForwardCommits | None = None,
        *,
        follows_log: bool = True,
    ) -> CopiedTable:
        """Copy the master's answer to `code`; then call `forward`."""
        table = CopiedTable(name, int(code), apply, least_pause_s, forward, follows_log)
        self.tables.append(table)
        return table

    def copy_soon(self) -> None:
        """Copy soon, because there is another master, or the log is now proven to be a
        copy.
        """
        self._changed.set()
        self._changed = trio.Event()

    async def run(self) -> None:
        """Copy until cancelled."""
        async with trio.open_nursery() as nursery:
            for table in self.tables:
                nursery.start_soon(self._copy_periodically, table)

    async def _copy_periodically(self, table: CopiedTable) -> None:
        while True:
            while not (self._role.master_address and self._is_copy()):
                await self._changed.wait()
            began = trio.current_time()
            if not self._role.is_acting:  # else the master lacks what was done here
                await self.copy(table)
            pause_s = COST_FACTOR * (trio.current_time() - began)
            pause_s = max(table.least_pause_s, min(pause_s, LARGEST_PAUSE_S))
            with trio.move_on_after(pause_s):
                await self._changed.wait()

    async def copy(self, table: CopiedTable) -> None:
        """Copy one table now."""
        master = self._role.master_address
        error = ""
        table.asked_end = self._safe_offset()
        try:
            request = Command.request(table.code)
            if table.follows_log:
                request.ext_fields[LOG_END] = "wanted"
            answer = await self._ask(master, request, ASK_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                error = f"it answers {answer.code}: {answer.remark}"
            else:
                if table.follows_log:
                    await self._wait_for_log(answer)
                table.apply(answer.body)
                if table.forward is not None:
                    await table.forward(self._ask, master)
                table.copies += 1
        except RmqError as failure:
            error = str(failure)
        if error and not table.error:
            logger.warning(
                "cannot copy %s from the master %s: %s",
                table.name,
                master,
                Foreign(error),
            )
        table.error = error

    async def _wait_for_log(self, answer: Command) -> None:
        """Wait until this log reaches the end that the master's log had at the
        answer.
        """
        text = answer.ext_fields.get(LOG_END, "0")
        end = int(text) if text.isdecimal() else 0
        with trio.move_on_after(LOG_LIMIT_S):
            while self._safe_offset() < end:  # noqa: ASYNC110 - a thread moves it, too
                await trio.sleep(LOG_PAUSE_S)
            return
        raise ConnectFailed(
            f"the log of this broker has not reached {end} in {LOG_LIMIT_S:g} s"
        )


def adding_log_end(log: CommitLog) -> Around:
    """Return a wrapper for the handlers of tables that follow the log: it adds the end
    of the log.
    """

    def add_end(answer: Answer) -> Answer:
        if isinstance(answer, Command):
            answer.ext_fields[LOG_END] = str(log.end_offset)
        return answer

    async def add_end_later(later: Later) -> Answer:
        return add_end(await later)

    def wrapped_handler(
        handler: Handler, request: Command, connection: Connection
    ) -> Result:
        found = handler(request, connection)
        if LOG_END not in request.ext_fields:
            return found
        return add_end_later(found) if isinstance(found, Coroutine) else add_end(found)

    return wrapped_handler
