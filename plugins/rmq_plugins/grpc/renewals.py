"""Renewals: messages that push consumers still process stay invisible.

A receive with `auto_renew` hides its messages for AUTO_RENEW_MS. Every RENEW_MS the
broker sets this time again, by request 200053, which gives the message another handle.
The client keeps its first handle, and `end_renewal` finds the valid one. A message is
renewed for MAX_AGE_MS at most, and only while its client is online. The table is in
memory: after a restart messages come again after a minute. Compiled receives add
messages to the table, and compiled acks remove them.
Limits: ENTRY_LIMIT messages, CLIENT_LIMIT of one client. Others are not renewed.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

import trio

from rmq.plugin import BrokerContext
from rmq.plugin.grpc import RENEWED_INVISIBLE_MS, Renewal, RenewalTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq_plugins.grpc.handles import Receipt, build_renewed, change_header
from rmq_plugins.grpc.sessions import Session, Sessions

AUTO_RENEW_MS: Final = RENEWED_INVISIBLE_MS
"""Java's invisible time of a receive with `auto_renew`."""

RENEW_MS: Final = 45_000
MAX_AGE_MS: Final = 3 * 3_600_000
ENTRY_LIMIT: Final = 100_000
CLIENT_LIMIT: Final = 4_096
PER_TURN: Final = 32
"""Number of renewals before other tasks run: 2 ms."""

GIVEN_BACK: Final = 64
"""Maximum number of messages that become visible at once when their client ends."""

OnReceipt = Callable[[Receipt], None]


class Owner(NamedTuple):
    """A session that received messages, and their place; `owner` of a Renewal."""

    session: Session
    """Its connection may be closed."""

    topic: str
    group: str
    lite_topic: str = ""


class Renewals:
    """The messages of all clients, by the handles that the clients have."""

    def __init__(self, broker: BrokerContext, sessions: Sessions) -> None:
        self._steady_ms = broker.clock.steady_ms
        self._sessions = sessions
        self.table = RenewalTable(
            self._steady_ms, limit=ENTRY_LIMIT, client_limit=CLIENT_LIMIT
        )

    def __len__(self) -> int:
        return len(self.table)

    @property
    def next_due_ms(self) -> int | None:
        """The time of the next renewal; None without messages."""
        first = next(iter(self.table.entries.values()), None)
        return None if first is None else first.renewed_ms + RENEW_MS

    def add(self, session: Session, topic: str, group: str, receipt: Receipt) -> None:
        """Renew a message from now on, if there is room for it."""
        owner = Owner(session, topic, group, receipt.lite_topic)
        self.table.add(session.client_id, owner, [receipt.text])

    def end_renewal(self, text: str, receipt: Receipt, use: OnReceipt) -> None:
        """Renew a message no more, and call `use` with its valid handle.

        `text` is the client's handle, and `receipt` the decoded handle.
        """
        entry = self.table.entries.get(text)
        if entry is None:
            use(receipt)
        elif entry.waiting is not None:
            entry.waiting.append(use)
        else:
            self.table.remove(text)
            use(entry.receipt or receipt)

    def end_session(self, session: Session) -> None:
        """Forget the messages of a session; some of them become visible at once.

        With the last session of a client all its messages end. Other sessions of the
        client keep their messages and the messages of closed connections.
        """
        is_last = self._sessions.is_last(session)
        entries = self.table.entries
        ended = [
            text
            for text in self.table.handles_of(session.client_id)
            if is_last or entries[text].owner.session is session
        ]
        for number, text in enumerate(ended):
            entry = self.table.remove(text)
            if number < GIVEN_BACK:
                entry.receipt = receipt_of(text, entry)
                self._request_time(session, entry, 0, lambda _answer: None)

    # -- the service

    async def run(self) -> None:
        """Renew messages until cancelled."""
        while True:
            # messages that come while it sleeps are due after it has woken up
            due_ms, now_ms = self.next_due_ms, self._steady_ms()
            wait_ms = RENEW_MS if due_ms is None else max(0, due_ms - now_ms)
            await trio.sleep(wait_ms / 1000)
            self.renew_due()

    def renew_due(self) -> None:
        """Renew the messages whose time has come, for a turn."""
        now_ms, table = self._steady_ms(), self.table
        for text, entry in list(islice(table.entries.items(), PER_TURN)):
            if entry.renewed_ms + RENEW_MS > now_ms:
                return
            session = self._sessions.find_client(entry.client_id)
            is_old = entry.began_ms + MAX_AGE_MS <= now_ms
            if session is None or is_old or entry.waiting is not None:
                table.remove(text)
                pass_on(entry)
                continue
            table.move_to_end(text)
            entry.renewed_ms = now_ms
            self._renew(session, text, entry)

    def _renew(self, session: Session, text: str, entry: Renewal) -> None:
        entry.receipt, entry.waiting = receipt_of(text, entry), []

        def on_answer(answer: Command) -> None:
            if answer.code == ResponseCode.SUCCESS:
                entry.receipt = build_renewed(entry.receipt, answer.ext_fields)
            is_over = bool(entry.waiting) or answer.code != ResponseCode.SUCCESS
            if is_over and self.table.entries.get(text) is entry:
                self.table.remove(text)
            pass_on(entry)

        self._request_time(session, entry, AUTO_RENEW_MS, on_answer)

    def _request_time(
        self,
        session: Session,
        entry: Renewal,
        invisible_ms: int,
        on_answer: Callable[[Command], None],
    ) -> None:
        assert session.caller is not None, "a session has a caller"
        owner = entry.owner
        header = change_header(owner.topic, owner.group, entry.receipt, invisible_ms)
        session.caller.serve_request(
            Command.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header), on_answer
        )


def receipt_of(text: str, entry: Renewal) -> Receipt:
    """Return the valid handle of a message; `text` is its first handle."""
    return entry.receipt or Receipt.decode(text, entry.owner.lite_topic)


def pass_on(entry: Renewal) -> None:
    """Call the waiting callbacks with the valid handle."""
    waiting, entry.waiting = entry.waiting, None
    for use in waiting or ():
        use(entry.receipt)
