"""A broker with something to see, the same each time, and a way to cut it off."""

import random
from contextlib import asynccontextmanager

import trio

from rmq.protocol.message import Message
from rmq.testing import ManualClock, running_node

NOW = 1_800_000_000_000
MARKUP = "<img src=x onerror=window.owned=1>"
HOSTILE = MARKUP + "\x1b[2J\u202e\u2066\u0000</script>"
ON = {"rmq.console": "true", "rmq.consolePort": "0"}
TOPICS = (
    ("order-paid", 16), ("order-created", 16), ("search-index", 8),
    ("price-changed", 8), ("notify-email", 4),
)  # fmt: skip
JSON = (
    b'{"order":4711003219288371205,"paid":true,"lines":[{"article":"a-1","count":2}]}'
)


def put(broker, topic, body=JSON, queue_id=0, **properties):
    """Store a message with any properties."""
    message = Message(
        topic, queue_id, body, 0, 0, broker.clock.now_ms(), broker.store_host,
        properties=properties,
    )  # fmt: skip
    broker.put.put(message)
    broker.arrivals.flush()


def fill(broker, clock, third=MARKUP):
    """Make topics, groups, problems, dead letters, delays and open transactions.

    `third` is the name of a group; the pictures have one that is not hostile.
    """
    chance = random.Random(7)  # the same each time
    for name, queues in TOPICS:
        broker.topics.ensure(name, queues=queues, perm=6)
    for number in range(80):
        broker.topics.ensure(f"tenant-{number:04d}-orders", queues=4, perm=6)
    for number in range(1_500):
        clock.ms += 7
        name, queues = chance.choice(TOPICS)
        texts = {"KEYS": f"o-{number}", "TAGS": chance.choice(("paid", "open"))}
        put(broker, name, queue_id=chance.randrange(queues), **texts)
    for name in ("search-indexer", "warehouse", third):
        topic, queues = TOPICS[2 if name == "search-indexer" else 0]
        for queue_id in range(queues):
            end = int(broker.store.reads.max_offset(topic, queue_id))
            done = 3 if name == "search-indexer" else end
            broker.offsets.commit("c", name, topic, queue_id, min(done, end))
    broker.topics.ensure("%DLQ%warehouse", queues=1, perm=6)
    for tag in ("paid", "paid", "open"):
        put(broker, "%DLQ%warehouse", DLQ_ORIGIN_TOPIC="order-paid", TAGS=tag)
    for number in range(5):
        put(broker, "order-paid", DELAY=str(9 + number))
        put(
            broker, "order-paid", TRAN_MSG="true", PGROUP="payments", KEYS=f"t-{number}"
        )
    put(broker, "notify-email", HOSTILE.encode(), KEYS=HOSTILE[:40], TAGS=HOSTILE[:40])
    for _ in range(9):
        clock.ms += 10_000
        broker.statistics.count_up()
        broker.monitor.sample()


class Cut:
    """A proxy between browser and console that can be cut."""

    def __init__(self, target):
        self.target, self.is_cut = target, False
        self.port = 0
        self._scopes = set()

    async def serve(self, *, task_status=trio.TASK_STATUS_IGNORED):
        """Pass connections on until cancelled."""
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        async with listener:
            await trio.serve_listeners(self._pass, [listener], task_status=task_status)

    def cut(self):
        """End all connections, and refuse new ones."""
        self.is_cut = True
        for scope in self._scopes:
            scope.cancel()

    async def _pass(self, browser):
        if self.is_cut:
            await browser.aclose()
            return
        async with browser, await trio.open_tcp_stream("127.0.0.1", self.target) as far:
            with trio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(_copy, browser, far, scope)
                        nursery.start_soon(_copy, far, browser, scope)
                finally:
                    self._scopes.discard(scope)


async def _copy(source, target, scope):
    try:
        async for data in source:
            await target.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    scope.cancel()


@asynccontextmanager
async def console(folder, settings=None, *, is_full=False, **names):
    """Run a broker with its console behind a `Cut`; yield both."""
    clock = ManualClock(NOW)
    async with running_node(folder, ON | (settings or {}), clock=clock) as node:
        if is_full:
            fill(node.broker.context, clock, **names)
        proxy = Cut(node.console_port)
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.serve)
            yield node, proxy
            nursery.cancel_scope.cancel()
