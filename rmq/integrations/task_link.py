"""TaskLink: the connection of one process to the broker of its task queues.

The link has no thread and no event loop. The owner of the link waits in `receive`, or
its loop calls `receive` when `fileno` is readable. Other threads may begin requests,
and renew leases while the owner is busy. The lock is held for calls that do not wait
for answers.

`request` and `send` wait for their answer. `begin` has a callback, which runs in the
thread that has received the answer, with the lock. With `call_soon` the callback lets
the owner continue, in `run_callbacks`.

After a fork the child has a new lock. The child opens new connections at the first use,
and only closes the descriptors of its parent.
"""

import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.client.codec import PullTemplate, SendTemplate
from rmq._fastpath.client.messages import SendResult
from rmq.core.errors import ConnectFailed, InvokeTimeout, PeerClosed, PeerError
from rmq.integrations.forks import watch_forks
from rmq.outgoing.connection import date_ms
from rmq.outgoing.identity import ANONYMOUS, Identity
from rmq.outgoing.link import Link
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.bodies.route import ClusterInfo, TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.route import GetRouteInfoRequestHeader
from rmq.protocol.hosts import host_bytes
from rmq.protocol.properties import UNIQ_KEY, WAIT, encode_properties

MASTER_ID: Final = 0
REQUEST_TIMEOUT_S: Final = 10.0
RECONNECT_S: Final = 0.3
"""Pause between two attempts to reach a broker that is away."""

RECONNECT_TIMEOUT_S: Final = 2.0
"""Timeout of such an attempt: an event loop waits for it."""

IDLE_S: Final = 5.0
"""A connection that was idle for longer is tested before a request: brokers close idle
connections.
"""

WAIT_STEP_S: Final = 0.2
"""Maximum time of one wait for bytes: another thread may have received the answer."""

MAX_TEMPLATES: Final = 1_000
"""Maximum number of send templates that are kept, one for each queue."""

Callback = Callable[[Any], None]


class Refused(AnswerRefused):
    """The broker refuses a request; `hint` has the remedy."""

    def __init__(self, address: str, answer: Command, what: str, hint: str) -> None:
        super().__init__(address, answer.code, answer.remark or "")
        self.args = (f"{what}: {self.args[0]}{hint and '; '}{hint}",)


class _Pending:
    """A request whose answer has not arrived."""

    __slots__ = ("answer", "callback")

    def __init__(self, callback: Callback | None = None) -> None:
        self.callback = callback
        self.answer: Any = None


class LinkEvents(Protocol):
    """The user of a link; the link calls it with the lock held."""

    def on_connected(self) -> None:
        """Continue after a connection was opened."""

    def on_lost(self) -> None:
        """Forget the requests whose answers have not arrived."""


class TaskLink:
    """The connection to the master of one broker.

    Args:
        name_servers (Sequence[str]): addresses. The first that answers is used.
        identity (Identity): user and TLS.
        events (LinkEvents): the user of the link.
        timeout_s (float): the time to open a connection.
        recover_s (float): maximum time without a broker before `recover` raises.
        broker_name (str): the broker that has the queues. By default it is the first
            one by name.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        identity: Identity = ANONYMOUS,
        *,
        events: LinkEvents | None = None,
        timeout_s: float = 5.0,
        recover_s: float = 120.0,
        broker_name: str = "",
    ) -> None:
        assert name_servers, "a link needs a name server"
        self.name_servers = tuple(name_servers)
        self.lock = threading.RLock()
        self.broker = ""
        self.address = ""
        self._wanted_broker = broker_name
        self._identity = identity
        self.events = events
        self._timeout_s = timeout_s
        self._recover_s = recover_s
        self._link: Link | None = None
        self._name_server: Link | None = None
        self.is_foreign = False
        """Whether this process is a child of the process that uses the link."""

        self._used_s = 0.0
        self._lost_s: float | None = None
        self._retry_s = 0.0
        self._arrived: deque[tuple[Callback, Any]] = deque()
        self._templates: dict[tuple[str, int], SendTemplate] = {}
        self._keys = UniqueKeys(host_bytes("127.0.0.1", 0), date_ms)
        watch_forks(self)

    # -- the connection

    def on_fork(self) -> None:
        """Prepare the link for a child process: replace the lock, which a thread of the
        parent may hold.
        """
        self.lock = threading.RLock()
        self.is_foreign = True

    @property
    def is_open(self) -> bool:
        """Whether there is a connection of this process."""
        return self._link is not None and not self.is_foreign

    def fileno(self) -> int:
        """Return the descriptor of the open connection."""
        assert self._link is not None, "the connection is closed"
        return self._link.fileno()

    def connect(self) -> None:
        """Find the broker and open a connection; PeerError if it is away."""
        self._open(self._timeout_s)

    def _open(self, timeout_s: float) -> None:
        with self.lock:
            self.broker, self.address = self._find_master()
            self._link = Link(self.address, timeout_s, self._identity)
            self._used_s = time.monotonic()
            self._lost_s = None
            if self.events is not None:
                self.events.on_connected()

    def _leave_parent(self) -> None:
        """Close the descriptors of a parent process, and send nothing to the
        servers.
        """
        if self.is_foreign:
            self.is_foreign = False
            self.close()
            self._keys = UniqueKeys(host_bytes("127.0.0.1", 0), date_ms)

    def recover(self) -> bool:
        """Reconnect if it is time; return whether there is a connection.

        A PeerError if the broker is away for `recover_s`.
        """
        if self.is_open:
            return True
        now_s = time.monotonic()
        if now_s < self._retry_s:
            return False
        self._retry_s = now_s + RECONNECT_S
        try:
            self._open(min(self._timeout_s, RECONNECT_TIMEOUT_S))
        except PeerError:
            if self._lost_s is None or now_s - self._lost_s > self._recover_s:
                raise
            return False
        self._retry_s = 0.0
        return True

    def drop(self) -> None:
        """Close the connection, and forget the requests without an answer."""
        with self.lock:
            if self._link is None:
                return
            self._link.close()
            self._link = None
            if self._lost_s is None:
                self._lost_s = time.monotonic()
            if self.events is not None:
                self.events.on_lost()

    def close(self) -> None:
        """Close all connections."""
        for link in (self._link, self._name_server):
            if link is not None:
                link.close()
        self._link = self._name_server = None
        self._arrived.clear()

    def _need_link(self) -> None:
        """Open the connection unless it is open."""
        if self.is_open:
            if time.monotonic() < self._used_s + IDLE_S:
                return
            self.receive(0)  # finds a connection that the broker has closed
            self._used_s = time.monotonic()
        if not self.is_open:
            self._open(self._timeout_s)

    # -- name servers

    def _request_name_server(self, command: Command) -> Command:
        """Return the answer of the first name server that answers."""
        self._leave_parent()
        if self._name_server is not None:
            try:
                return self._name_server.request(command)
            except PeerError:
                self._name_server.close()
                self._name_server = None
        failure: PeerError | None = None
        for address in self.name_servers:
            try:
                link = Link(address, self._timeout_s, self._identity)
            except PeerError as error:
                failure = failure or error
                continue
            try:
                answer = link.request(command)
            except PeerError as error:
                link.close()
                failure = failure or error
                continue
            self._name_server = link
            return answer
        assert failure is not None, "there is a name server"
        raise failure

    def _find_master(self) -> tuple[str, str]:
        """Return name and address of the broker."""
        answer = self._request_name_server(
            Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        )
        where = ", ".join(self.name_servers)
        if answer.code != ResponseCode.SUCCESS:
            raise ConnectFailed(f"{where} answers {answer.code}: {answer.remark}")
        table = ClusterInfo.decode(answer.body).broker_addr_table
        wanted = self._wanted_broker or self.broker
        for name in [wanted] if wanted else sorted(table):
            broker = table.get(name)
            if broker is not None and MASTER_ID in broker.broker_addrs:
                return name, broker.broker_addrs[MASTER_ID]
        of = f" {wanted}" if wanted else ""
        raise ConnectFailed(f"the name server {where} knows no master{of}")

    def queue_count(self, topic: str) -> int | None:
        """Return the number of the topic's queues on the broker; None without the
        topic.
        """
        header = GetRouteInfoRequestHeader(topic=topic)
        command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        with self.lock:
            answer = self._request_name_server(command)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            where = ", ".join(self.name_servers)
            raise Refused(where, answer, f"cannot look up the topic {topic}", "")
        for each in TopicRouteData.decode(answer.body).queue_datas:
            if each.broker_name == self.broker:
                return each.write_queue_nums
        return None

    # -- requests

    def request(self, command: Command) -> Command:
        """Return the answer of the broker with any code; PeerError without one."""
        pending = _Pending()
        self._need_link()
        self._begin(lambda link: link.begin(command, pending))
        answer: Command = self._wait(pending)
        return answer

    def begin(self, command: Command, callback: Callback) -> None:
        """Begin a request over the open connection; `flush` sends it."""
        pending = _Pending(callback)
        self._begin(lambda link: link.begin(command, pending))

    def begin_pull(
        self,
        template: PullTemplate,
        callback: Callback,
        *,
        offset: int,
        count: int,
        hold_ms: int,
    ) -> None:
        """Begin a pull; the callback gets a PullResult."""
        pending = _Pending(callback)
        self._begin(
            lambda link: link.pull(
                template, pending, offset=offset, count=count, hold_ms=hold_ms
            )
        )

    def pull(self, template: PullTemplate, *, offset: int, count: int) -> Any:  # noqa: ANN401 - PullResult or Command
        """Return the answer to a pull that is not held."""
        pending = _Pending()
        self._need_link()
        self._begin(
            lambda link: link.pull(template, pending, offset=offset, count=count)
        )
        return self._wait(pending)

    def send(
        self, topic: str, queue_id: int, body: bytes, properties: dict[str, str]
    ) -> SendResult | Command:
        """Store a message; return the result, or the answer that refuses it."""
        pending = _Pending()
        self._need_link()
        self._begin_send(topic, queue_id, body, properties, pending)
        answer: SendResult | Command = self._wait(pending)
        return answer

    def begin_send(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: dict[str, str],
        callback: Callback,
    ) -> None:
        """Begin to store a message; the callback gets what `send` returns."""
        pending = _Pending(callback)
        self._begin_send(topic, queue_id, body, properties, pending)

    def _begin_send(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: dict[str, str],
        pending: _Pending,
    ) -> None:
        template = self._templates.get((topic, queue_id))
        if template is None:
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            template = SendTemplate("rmq-tasks", topic, queue_id, None)
            self._templates[topic, queue_id] = template
        texts = {UNIQ_KEY: self._keys.next(), WAIT: "true", **properties}
        data = encode_properties(texts).encode()
        self._begin(lambda link: link.send(template, data, body, pending))

    def _begin(self, begin: Callable[[Link], None]) -> None:
        with self.lock:
            if self._link is None or self.is_foreign:
                raise PeerClosed(f"there is no connection to {self.address}")
            begin(self._link)

    def flush(self) -> None:
        """Send the requests that were begun; a PeerError loses the connection."""
        with self.lock:
            link = self._link
            if link is None or self.is_foreign:
                return
            try:
                link.flush()
            except PeerError:
                self.drop()
                raise

    def _wait(self, pending: _Pending) -> Any:  # noqa: ANN401 - of any request
        link = self._link
        self.flush()
        end_s = time.monotonic() + REQUEST_TIMEOUT_S
        while pending.answer is None:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                self.drop()
                raise InvokeTimeout(f"{self.address} did not answer in time")
            if self._link is not link:
                raise PeerClosed(f"{self.address} closed the connection")
            self.receive(min(left_s, WAIT_STEP_S))
        self._used_s = time.monotonic()
        return pending.answer

    # -- answers

    @property
    def has_arrived(self) -> bool:
        """Whether functions wait for `run_callbacks`."""
        return bool(self._arrived)

    def receive(self, timeout_s: float) -> bool:
        """Receive the answers that have arrived or arrive in time; return whether there
        was one.

        The end of the connection is not an error here: `is_open` is false then.
        """
        link = self._link
        if link is None or self.is_foreign:
            return False
        if timeout_s > 0 and not _wait_readable(link, timeout_s):
            return False
        with self.lock:
            if self._link is not link:
                return False
            try:
                answers = link.receive_answers(0)
            except PeerError:
                self.drop()
                return False
            for pending, answer in answers:
                if pending is None:
                    continue  # a request of the broker
                pending.answer = answer
                if pending.callback is not None:
                    pending.callback(answer)
        return bool(answers)

    def call_soon(self, callback: Callback, value: object) -> None:
        """Let `run_callbacks` call a function."""
        self._arrived.append((callback, value))

    def run_callbacks(self) -> None:
        """Run the functions of `call_soon`."""
        while self._arrived:
            callback, answer = self._arrived.popleft()
            callback(answer)


def _wait_readable(link: Link, timeout_s: float) -> bool:
    """Wait for bytes; gevent and eventlet replace these functions by their own."""
    if hasattr(select, "poll"):  # eventlet removes it
        poller = select.poll()
        poller.register(link, select.POLLIN)
        return bool(poller.poll(timeout_s * 1_000))
    return bool(select.select([link], [], [], timeout_s)[0])
