"""Renewals: messages that push consumers still process stay invisible.

A receive with `auto_renew` hides its messages for AUTO_RENEW_MS. Every RENEW_MS the
broker sets this time again, by request 200053, which gives the message another handle.
The client keeps its first handle, and `end_renewal` finds the valid one. A message is
renewed for MAX_AGE_MS at most, and only while its client is online. The table is in
memory: after a restart messages come again after a minute.
Limits: ENTRY_LIMIT messages, CLIENT_LIMIT of one client. Others are not renewed.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

import trio

from rmq.plugin import BrokerContext
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq_plugins.grpc.handles import Receipt, build_renewed, change_header
from rmq_plugins.grpc.sessions import Session, Sessions

AUTO_RENEW_MS: Final = 60_000
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


class Renewal:
    """One message; it compares by identity."""

    __slots__ = ("due_ms", "end_ms", "group", "receipt", "session", "topic",
                 "waiting")  # fmt: skip

    def __init__(
        self, session: Session, topic: str, group: str, receipt: Receipt, now_ms: int
    ) -> None:
        self.session = session
        """Session that received the message; its connection may be closed."""

        self.topic = topic
        self.group = group
        self.receipt = receipt
        """The handle that is valid now."""

        self.due_ms = now_ms + RENEW_MS
        self.end_ms = now_ms + MAX_AGE_MS
        self.waiting: list[OnReceipt] | None = None
        """Callbacks that wait for the end of a renewal; None if no renewal is in
        flight.
        """


class Renewals:
    """The messages of all clients, by the handles that the clients have."""

    def __init__(self, broker: BrokerContext, sessions: Sessions) -> None:
        self._steady_ms = broker.clock.steady_ms
        self._sessions = sessions
        self._entries: dict[str, Renewal] = {}
        """The messages by their first handles; the next message to renew comes
        first.
        """

        self._by_client: dict[str, set[str]] = {}
        """The handles of each client."""

        self._has_entries = trio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def next_due_ms(self) -> int | None:
        """The time of the next renewal; None without messages."""
        first = next(iter(self._entries.values()), None)
        return None if first is None else first.due_ms

    def add(self, session: Session, topic: str, group: str, receipt: Receipt) -> None:
        """Renew a message from now on, if there is room for it."""
        own = self._by_client.get(session.client_id, set())
        if len(self._entries) >= ENTRY_LIMIT or len(own) >= CLIENT_LIMIT:
            return
        self._entries[receipt.text] = Renewal(
            session, topic, group, receipt, self._steady_ms()
        )
        self._by_client.setdefault(session.client_id, own).add(receipt.text)
        self._has_entries.set()

    def end_renewal(self, text: str, receipt: Receipt, use: OnReceipt) -> None:
        """Renew a message no more, and call `use` with its valid handle.

        `text` is the client's handle, and `receipt` the decoded handle.
        """
        entry = self._entries.get(text)
        if entry is None:
            use(receipt)
        elif entry.waiting is not None:
            entry.waiting.append(use)
        else:
            self._remove(text)
            use(entry.receipt)

    def end_session(self, session: Session) -> None:
        """Forget the messages of a session; some of them become visible at once.

        With the last session of a client all its messages end. Other sessions of the
        client keep their messages and the messages of closed connections.
        """
        is_last = self._sessions.is_last(session)
        ended = [
            text
            for text in self._by_client.get(session.client_id, ())
            if is_last or self._entries[text].session is session
        ]
        for number, text in enumerate(ended):
            entry = self._remove(text)
            if number < GIVEN_BACK:
                self._request_time(session, entry, 0, lambda _answer: None)

    def _remove(self, text: str) -> Renewal:
        entry = self._entries.pop(text)
        own = self._by_client[entry.session.client_id]
        own.remove(text)
        if not own:
            del self._by_client[entry.session.client_id]
        return entry

    # -- the service

    async def run(self) -> None:
        """Renew messages until cancelled."""
        while True:
            await self._has_entries.wait()
            due_ms = self.next_due_ms
            if due_ms is None:
                self._has_entries = trio.Event()
            elif due_ms > self._steady_ms():
                await trio.sleep((due_ms - self._steady_ms()) / 1000)
            else:
                self.renew_due()
                await trio.lowlevel.checkpoint()

    def renew_due(self) -> None:
        """Renew the messages whose time has come, for a turn."""
        now_ms = self._steady_ms()
        for text, entry in list(islice(self._entries.items(), PER_TURN)):
            if entry.due_ms > now_ms:
                return
            session = self._sessions.find_client(entry.session.client_id)
            if session is None or entry.end_ms <= now_ms or entry.waiting is not None:
                self._remove(text)
                self._pass_on(entry)
                continue
            # the table is in the order of the next renewals: move the entry to the end
            self._entries[text] = self._entries.pop(text)
            entry.due_ms = now_ms + RENEW_MS
            self._renew(session, text, entry)

    def _pass_on(self, entry: Renewal) -> None:
        """Call the waiting callbacks with the valid handle."""
        waiting, entry.waiting = entry.waiting, None
        for use in waiting or ():
            use(entry.receipt)

    def _renew(self, session: Session, text: str, entry: Renewal) -> None:
        entry.waiting = []

        def on_answer(answer: Command) -> None:
            if answer.code == ResponseCode.SUCCESS:
                entry.receipt = build_renewed(entry.receipt, answer.ext_fields)
            is_over = bool(entry.waiting) or answer.code != ResponseCode.SUCCESS
            if is_over and self._entries.get(text) is entry:
                self._remove(text)
            self._pass_on(entry)

        self._request_time(session, entry, AUTO_RENEW_MS, on_answer)

    def _request_time(
        self,
        session: Session,
        entry: Renewal,
        invisible_ms: int,
        on_answer: Callable[[Command], None],
    ) -> None:
        assert session.caller is not None, "a session has a caller"
        header = change_header(entry.topic, entry.group, entry.receipt, invisible_ms)
        session.caller.serve_request(
            Command.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header), on_answer
        )
