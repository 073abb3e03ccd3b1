"""Poller: requests the overviews and views that `rmq top` shows.

Brokers of rmq answer request 20003. A broker of Java does not know it; the poller
derives its overview from other requests, see `rmq/observe/java_broker.py`.
"""

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from rmq.cli.top.overview import Overview
from rmq.client.admin import MASTER, AdminClient, BrokerAddress, NoBroker
from rmq.core.clock import SystemClock
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import OwnRequestCode, ResponseCode

if TYPE_CHECKING:
    from rmq.observe.java_broker import JavaBroker

MAX_ROWS: Final = 100
"""Maximum number of groups and topics of one request."""


View = TypeVar("View", bound=msgspec.Struct)


class Poller:
    """Asks one broker, or all masters; keeps the samples of Java's brokers."""

    def __init__(self, admin: AdminClient, broker: str | None) -> None:
        self._admin, self._broker = admin, broker
        self._java_brokers: dict[str, JavaBroker] = {}
        self.row_limit = MAX_ROWS

    def poll(self) -> list[Overview]:
        """Return the overviews of all brokers; NoBroker if there is no master."""
        return [msgspec.convert(each, Overview) for each in self.poll_json()]

    def poll_json(self) -> list[dict[str, Any]]:
        """Return the overview of each broker as its JSON object."""
        return [self._fetch_overview(each) for each in self._list_brokers()]

    def _list_brokers(self) -> list[BrokerAddress]:
        if self._broker is not None:
            return [BrokerAddress("", self._broker, MASTER, self._broker)]
        masters = self._admin.masters()
        if not masters:
            raise NoBroker(self._admin.name_servers)
        return masters

    def fetch_views(self, view: str, form: type[View], /, **fields: str) -> list[View]:
        """Return a view of each broker that serves it."""
        found = []
        for broker in self._list_brokers():
            if broker.address in self._java_brokers:
                continue
            try:
                value = self._fetch_view(broker.address, view, fields)
            except AnswerRefused:
                continue
            found.append(msgspec.convert(value, form))
        return found

    def _fetch_view(
        self, address: str, name: str, fields: dict[str, str]
    ) -> dict[str, Any]:
        view: dict[str, Any] = self._admin.request_json(
            address, OwnRequestCode.GET_VIEW, {"view": name, **fields}
        )
        return view

    def _fetch_overview(self, broker: BrokerAddress) -> dict[str, Any]:
        known = self._java_brokers.get(broker.address)
        if known is None:
            try:
                limit = {"n": str(self.row_limit)}
                return self._fetch_view(broker.address, "overview", limit)
            except AnswerRefused as refusal:
                if refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
            # imported on use: most clusters have no broker of Java
            from rmq.observe.java_broker import JavaBroker

            known = JavaBroker(broker.name, broker.cluster, SystemClock().now_ms)
            self._java_brokers[broker.address] = known
        questions = known.poll_requests()
        try:
            question = next(questions)
            while True:
                question = questions.send(self._fetch_body(broker.address, *question))
        except StopIteration:
            return known.overview()

    def _fetch_body(
        self, address: str, code: int, fields: dict[str, str]
    ) -> bytes | None:
        try:
            return self._admin.request(address, code, fields).body
        except AnswerRefused:
            return None
