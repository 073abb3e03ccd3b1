"""PutPipeline: the steps of a message before it is stored.

An interceptor (of transactions, of delays) names the properties that it needs. A
message without any of these properties is stored directly. Known in Java as the
put-message hooks of `HookUtils`.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.handlers.diversion import DelayedSends, Diversion, HalfSends
from rmq._fastpath.handlers.end_path import EndPath
from rmq._fastpath.handlers.send_back_path import SendBackPath
from rmq._fastpath.handlers.send_table import SendTable
from rmq.plugin.registrations import PutInterceptor, SendFields
from rmq.protocol.batch import BatchItem
from rmq.protocol.message import Message
from rmq.protocol.properties import DELAY, INNER_MULTI_DISPATCH, TRAN_MSG
from rmq.protocol.topics import (
    MAX_RETRY_TOPIC_LENGTH,
    MAX_TOPIC_LENGTH,
    is_dlq_topic,
    is_retry_topic,
)
from rmq.store.message_store import MessageStore
from rmq.store.results import BatchPutResult, PutResult, PutStatus


class PutPipeline:
    """The steps that every new message passes before it is stored."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._interceptors: tuple[PutInterceptor, ...] = ()
        self._table: SendTable | None = None
        self._end_path: EndPath | None = None
        self.send_fields: dict[str, SendFields] = {}
        """Functions that add fields to answers of sends, by stored topic."""

        self.triggers: set[str] = set()
        """Properties with an interceptor; handlers hold a reference to this set."""

    def set_interceptors(self, interceptors: Iterable[PutInterceptor]) -> None:
        """Set the interceptors, in their order."""
        self._interceptors = tuple(interceptors)
        self.triggers.clear()
        self.triggers.update(*(each.triggers for each in self._interceptors))

    def send_table(
        self,
        *,
        now_ms: Callable[[], int],
        store_host: bytes,
        facts: dict[str, str],
        added: bytes,
        keys: UniqueKeys,
        declined_properties: AbstractSet[str],
        declined_text: bytes,
        version: int,
    ) -> SendTable:
        """Return a table with which compiled handlers store like `put`.

        Python serves messages with a property of an interceptor that is not compiled,
        and messages with one of the `declined_properties`.
        """
        compiled = self.compiled_interceptors()
        table = self._table = SendTable(
            self._store.log,
            now_ms=now_ms,
            on_failure=self._store.writes.write_failed,
            store_host=store_host,
            facts=facts,
            added=added,
            keys=keys,
            declined_properties=(declined_properties | self.triggers) - compiled.keys(),
            diversions=compiled,
            declined_text=declined_text,
            waits_for_disk=self._store.durability.senders_wait,
            max_body_size=self._store.config.max_message_size,
            version=version,
        )
        if self._end_path is not None:
            self._end_path.table = table
        return table

    def end_path(
        self,
        halves: HalfSends,
        *,
        on_begin: Callable[[int], bool],
        on_end: Callable[[list[int], list[tuple[str, int]], bool], object],
        declined: AbstractSet[str],
        version: int,
    ) -> EndPath:
        """Return the compiled handler of commits, which stores like compiled sends.

        Python serves half messages with an interceptor's property, except TRAN_MSG, or
        with one of the `declined` properties.
        """
        path = self._end_path = EndPath(
            self._store.log.reader,
            self._store.positions.visible_limit,
            halves,
            declined=(declined | self.triggers) - {TRAN_MSG},
            on_begin=on_begin,
            on_end=on_end,
            version=version,
        )
        path.table = self._table
        return path

    def send_back_path(
        self,
        *,
        choose_queue: Callable[[int], int],
        on_stored: Callable[[list[tuple[str, str, bool]]], object],
        version: int,
    ) -> SendBackPath:
        """Return the compiled handler of messages that consumers give back.

        Python serves all requests if no compiled interceptor serves DELAY. It also
        serves messages with another interceptor's property, except TRAN_MSG.
        `send_table` comes first.
        """
        assert self._table is not None, "send_table() has made it"
        delayed = self.compiled_interceptors().get(DELAY)
        return SendBackPath(
            self._table,
            self._store.log.reader,
            self._store.positions.visible_limit,
            delayed if isinstance(delayed, DelayedSends) else None,
            declined=(self.triggers | {INNER_MULTI_DISPATCH}) - {DELAY, TRAN_MSG},
            choose_queue=choose_queue,
            on_stored=on_stored,
            version=version,
        )

    def compiled_interceptors(self) -> dict[str, Diversion]:
        """Return the compiled interceptors by property, without properties that another
        interceptor names, too.
        """
        compiled: dict[str, Diversion] = {}
        for each in self._interceptors:
            if each.native is not None:
                others = (it.triggers for it in self._interceptors if it is not each)
                own = sorted(each.triggers.difference(*others))
                compiled |= dict.fromkeys(own, each.native)
        return compiled

    def put(self, message: Message, *, without: str = "") -> PutResult:
        """Store one message; skip the interceptors of the property `without`."""
        present = message.properties.keys()  # isdisjoint iterates over the smaller one
        if self._interceptors and not present.isdisjoint(self.triggers):
            for triggers, intercept, _ in self._interceptors:
                if without not in triggers and not present.isdisjoint(triggers):
                    intercept(message)
        return self.append(message)

    def append(self, message: Message) -> PutResult:
        """Store a message that has already passed the interceptors."""
        if len(message.topic) > MAX_TOPIC_LENGTH and not _may_be_long(message.topic):
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        return self._store.writes.put(message)

    def put_batch(self, message: Message, items: Sequence[BatchItem]) -> BatchPutResult:
        """Store the items of a client batch one after the other."""
        if len(message.topic) > MAX_TOPIC_LENGTH:
            return BatchPutResult(PutStatus.MESSAGE_ILLEGAL)
        return self._store.writes.put_batch(message, items)


def _may_be_long(topic: str) -> bool:
    is_own = is_retry_topic(topic) or is_dlq_topic(topic)
    return is_own and len(topic) <= MAX_RETRY_TOPIC_LENGTH
