"""A slave that acts as the master twice within one look uses no earlier state.

Between its two terms the master has delivered messages, and the slave has copied the
progress of the master.
"""

import pytest
import trio
import trio.testing

from rmq.cluster.group_role import GroupRole
from rmq.cluster.recent_routes import RecentRoutes
from rmq.cluster.remote_escape import RemoteEscape
from rmq.config.broker import BrokerConfig
from rmq.core.errors import ConnectFailed
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PERM_WRITE
from rmq.protocol.topics import TRANS_HALF_TOPIC
from rmq.store.config import BrokerRole, StoreConfig
from rmq.store.timer.checkpoint import TimerCheckpoint
from rmq_plugins.schedule import deliver as schedule
from rmq_plugins.schedule.acting import ActingDeliveries as SendsDelayed
from rmq_plugins.timer.acting import ActingDeliveries
from rmq_plugins.timer.deliver import Deliveries
from rmq_plugins.transaction.acting import ActingChecks
from tests.plugins.timer.timing import send_timed
from tests.plugins.transaction.test_transaction import COMMIT, begin, end_of

DUE_MS = 5_000
PAUSE_S = 2
"""Time for several looks."""


class OtherGroup:
    """A directory that knows a broker of another group, and stores there."""

    def __init__(self, *, is_up=True):
        self.is_up = is_up
        self.stored = []
        self.while_storing = lambda: None
        self.recent_routes = RecentRoutes(self.route)

    async def route(self, topic):
        if not self.is_up:
            raise ConnectFailed(f"there is no broker for {topic}")
        broker = BrokerData(broker_name="other", broker_addrs={0: "127.0.0.1:1"})
        queues = QueueData(broker_name="other", write_queue_nums=4, perm=PERM_WRITE)
        return TopicRouteData(broker_datas=[broker], queue_datas=[queues])

    async def send_request(self, address, request, timeout_ms):
        self.stored.append(request.body)
        self.while_storing()
        return request.reply(0)


@pytest.fixture
def acting_role():
    slave = StoreConfig(broker_role=BrokerRole.SLAVE)
    found = GroupRole(BrokerConfig(broker_id=1), slave, may_act=True)
    found.set_acting(is_acting=True)
    return found


def run_two_terms(acting, role, between):
    async def run():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(acting.run)
            await trio.sleep(PAUSE_S)
            role.set_acting(is_acting=False)
            await between()
            role.set_acting(is_acting=True)
            await trio.sleep(PAUSE_S)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_delayed_messages(caller, acting_role):
    for body in (b"one", b"two", b"three"):
        assert caller.send(body=body, properties="DELAY\x011\x02").code == 0
    caller.broker.clock.ms += DUE_MS
    deliveries, other = caller.find(schedule.Deliveries), OtherGroup()
    escape = RemoteEscape(acting_role, other, "group")
    acting = SendsDelayed(deliveries, escape, caller.broker)
    masters_version = deliveries.offsets.data_version

    def master_delivers():
        acting_role.set_acting(is_acting=False)
        deliveries.offsets.set(1, 2)
        acting_role.set_acting(is_acting=True)
        other.while_storing = lambda: None

    async def do_nothing():
        """Its terms end while the first message is sent."""

    other.while_storing = master_delivers
    run_two_terms(acting, acting_role, do_nothing)
    assert other.stored == [b"one", b"three"]
    # Java's master takes offsets back only with a version that is not older
    assert deliveries.offsets.data_version.counter > masters_version.counter


@pytest.mark.parametrize("is_delivered", [False, True])
def test_timed_messages(caller, acting_role, is_delivered):
    send_timed(caller)
    other, clock = OtherGroup(), caller.broker.clock
    escape = RemoteEscape(acting_role, other, "group")
    acting = ActingDeliveries(caller.find(Deliveries), escape, caller.broker)

    async def master_delivers():
        clock.ms += 2 * DUE_MS
        if is_delivered:
            progress = TimerCheckpoint(read_ms=clock.now_ms(), queue_offset=1)
            timer = caller.broker.store.timer
            assert timer.save_master_checkpoint(progress.encode())

    run_two_terms(acting, acting_role, master_delivers)
    assert other.stored == ([] if is_delivered else [b"later"])


@pytest.mark.parametrize("is_ended", [False, True])
def test_open_transactions(caller, acting_role, is_ended):
    half = begin(caller)
    assert half.topic == TRANS_HALF_TOPIC
    other = OtherGroup(is_up=False)
    acting = ActingChecks(caller.broker, RemoteEscape(acting_role, other, "group"))

    async def producer_commits():
        other.is_up = True
        if is_ended:
            fields = {name: str(value) for name, value in end_of(half, COMMIT).items()}
            request = Command(int(RequestCode.END_TRANSACTION), fields)
            assert (await caller.serve(request)).code == 0

    run_two_terms(acting, acting_role, producer_commits)
    assert other.stored == ([] if is_ended else [b"pay"])
