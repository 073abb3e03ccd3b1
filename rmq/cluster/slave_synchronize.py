"""CopiedTables: what a slave copies from its master beside the log.

Topics, groups and offsets are the broker's own; a plugin adds its tables with
`Register.copied_table`.  Each is asked for as soon as the log is proven to be a copy of
the master's, because the topics that a master of another group lacks would be deleted
here; then again and again, after a pause of 20 times what it took: so a large table
costs the master a twentieth of its time at most.  A table that fails is logged once,
and the others go on.

Offsets say what is done: delivered, committed, taken up again.  The records of that are
in the master's log before; a slave that had the offsets first, and became the master,
would never do it.  So a slave asks with such a table where the master's log ends, and
takes the table when its own log has all that.  Java tells nothing.
Known in Java as `SlaveSynchronize`, which begins after a minute.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine

import msgspec
import trio

from rmq.cluster.directory import Ask
from rmq.cluster.role import Role
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
"""Field of an answer: where the master's log ended; of a question: tell that."""

LOG_LIMIT_S = 30.0
LOG_PAUSE_S = 0.02
"""How long, and how often, a slave looks whether its log is so long."""

LEAST_PAUSE_S = 1.0
LARGEST_PAUSE_S = 60.0
COST_FACTOR = 20

Apply = Callable[[bytes], object]
"""Takes the body of the master's answer; RequestRejected if it is none of its kind."""

GiveBack = Callable[[Ask, str], Awaitable[None]]
"""Gives the master at an address what it lacks; PeerError if it does not answer."""


class CopiedTable(msgspec.Struct):
    """A table of the master, by the request that asks for it."""

    name: str
    code: int
    apply: Apply
    least_pause_s: float = LEAST_PAUSE_S
    give_back: GiveBack | None = None
    follows_log: bool = True
    """Whether it may say that something is done of which the log has the records."""

    asked_end: int = 0
    """Where the log ended when the master was asked: the answer knows of all before."""

    error: str = ""
    """Why the last attempt failed; empty after a success."""

    copies: int = 0


class CopiedTables:
    """All tables that a slave copies."""

    def __init__(self, role: Role, ask: Ask) -> None:
        self.tables: list[CopiedTable] = []
        self.is_copy: Callable[[], bool] = lambda: False
        """Whether the log is a copy of the master's."""

        self.safe_end: Callable[[], int] = lambda: 0
        """Where the log ends, as far as it is safe here."""

        self._role = role
        self._ask = ask
        self._changed = trio.Event()
        role.on_change.append(self.note_change)

    def add(
        self,
        name: str,
        code: int,
        apply: Apply,
        least_pause_s: float = LEAST_PAUSE_S,
        give_back: GiveBack | None = None,
        *,
        follows_log: bool = True,
    ) -> CopiedTable:
        """Copy what the master answers to `code`; then call `give_back`."""
        table = CopiedTable(
            name, int(code), apply, least_pause_s, give_back, follows_log
        )
        self.tables.append(table)
        return table

    def note_change(self) -> None:
        """Copy soon: there is another master, or the log has been proven."""
        self._changed.set()
        self._changed = trio.Event()

    async def run(self) -> None:
        """Copy until cancelled."""
        async with trio.open_nursery() as nursery:
            for table in self.tables:
                nursery.start_soon(self._copy_regularly, table)

    async def _copy_regularly(self, table: CopiedTable) -> None:
        while True:
            while not (self._role.master_address and self.is_copy()):
                await self._changed.wait()
            began = trio.current_time()
            await self.copy(table)
            pause_s = COST_FACTOR * (trio.current_time() - began)
            pause_s = max(table.least_pause_s, min(pause_s, LARGEST_PAUSE_S))
            with trio.move_on_after(pause_s):
                await self._changed.wait()

    async def copy(self, table: CopiedTable) -> None:
        """Copy one table now."""
        master = self._role.master_address
        error = ""
        table.asked_end = self.safe_end()
        try:
            request = Command.request(table.code)
            if table.follows_log:
                request.ext_fields[LOG_END] = "wanted"
            answer = await self._ask(master, request, ASK_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                error = f"it answers {answer.code}: {answer.remark}"
            else:
                if table.follows_log:
                    await self._reach(answer)
                table.apply(answer.body)
                if table.give_back is not None:
                    await table.give_back(self._ask, master)
                table.copies += 1
        except RmqError as failure:
            error = str(failure)
        if error and not table.error:
            logger.warning(
                "copying %s from the master %s: %s", table.name, master, Foreign(error)
            )
        table.error = error

    async def _reach(self, answer: Command) -> None:
        """Wait until the log has what the master's had when it answered."""
        told = answer.ext_fields.get(LOG_END, "0")
        end = int(told) if told.isdecimal() else 0
        with trio.move_on_after(LOG_LIMIT_S):
            while self.safe_end() < end:  # noqa: ASYNC110 - it grows in a thread, too
                await trio.sleep(LOG_PAUSE_S)
            return
        raise ConnectFailed(f"the log here has not come to {end} in {LOG_LIMIT_S:g} s")


def telling_end(log: CommitLog) -> Around:
    """Return what is put around the handlers of such tables."""

    def tell(answer: Answer) -> Answer:
        if isinstance(answer, Command):
            answer.ext_fields[LOG_END] = str(log.end_offset)
        return answer

    async def tell_later(later: Later) -> Answer:
        return tell(await later)

    def around(handler: Handler, request: Command, connection: Connection) -> Result:
        found = handler(request, connection)
        if LOG_END not in request.ext_fields:
            return found
        return tell_later(found) if isinstance(found, Coroutine) else tell(found)

    return around
