"""Looking: asks brokers for what `rmq top` shows.

A broker of rmq tells all of it with one request; one of Java's does not know it, and is
asked for what it tells, see `rmq/observe/java_broker.py`.
"""

from typing import TYPE_CHECKING, Any, Final

from rmq.client.admin import MASTER, AdminClient, BrokerAddress
from rmq.core.clock import SystemClock
from rmq.core.errors import RmqError
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import OwnRequestCode, ResponseCode

if TYPE_CHECKING:
    from rmq.observe.java_broker import JavaBroker

ROWS: Final = 100
"""Groups and topics that a broker is asked for."""

State = dict[str, Any]


class NoMaster(RmqError):
    """The name server knows no master."""


class Looking:
    """Whom to ask, and what the brokers of Java have told before."""

    def __init__(self, admin: AdminClient, broker: str | None) -> None:
        self._admin, self._broker = admin, broker
        self._of_java: dict[str, JavaBroker] = {}
        self.rows = ROWS

    def look(self) -> list[State]:
        """Ask the brokers for their overviews; NoMaster if there is none."""
        return [self._overview(each) for each in self._asked()]

    def _asked(self) -> list[BrokerAddress]:
        asked = [BrokerAddress("", self._broker or "", MASTER, self._broker or "")]
        if self._broker is None:
            asked = self._admin.masters()
        if not asked:
            names = ", ".join(self._admin.name_servers)
            raise NoMaster(f"{names} knows no master")
        return asked

    def views(self, view: str, **fields: str) -> list[State]:
        """Ask the brokers for a view; without those that do not tell it."""
        found = []
        for broker in self._asked():
            if broker.address in self._of_java:
                continue
            code = OwnRequestCode.GET_VIEW
            try:
                found.append(
                    self._admin.value(broker.address, code, {"view": view, **fields})
                )
            except AnswerRefused:
                continue
        return found

    def _overview(self, broker: BrokerAddress) -> State:
        told = self._of_java.get(broker.address)
        if told is None:
            fields = {"view": "overview", "n": str(self.rows)}
            try:
                code = OwnRequestCode.GET_VIEW
                own: State = self._admin.value(broker.address, code, fields)
            except AnswerRefused as refusal:
                if refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
            else:
                return own
            # imported on use: most clusters have no broker of Java
            from rmq.observe.java_broker import JavaBroker

            told = JavaBroker(broker.name, broker.cluster, SystemClock().now_ms)
            self._of_java[broker.address] = told
        questions = told.questions()
        try:
            question = next(questions)
            while True:
                question = questions.send(self._body(broker.address, *question))
        except StopIteration:
            return told.overview()

    def _body(self, address: str, code: int, fields: dict[str, str]) -> bytes | None:
        try:
            return self._admin.ask(address, code, fields).body
        except AnswerRefused:
            return None
