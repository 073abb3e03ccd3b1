"""Ten incidents, made by Java's and Go's clients on a real broker: `make lab
NAME=incidents`.

Each is named by the console's API, `rmq top` and `rmq doctor` within 15 seconds while
somebody looks, and by none of them any more when it is mended.  The table at the end
has the seconds.
"""

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.console.doors import TIMES, Incident, watched
from tests.interop import wire
from tests.interop.conftest import prepared
from tests.interop.drivers import driving
from tests.interop.toolchains import MQADMIN, Go, Java, run
from tests.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

FOREVER = 1_000_000_000
TOPIC, GROUP = "Orders", "billing"
OF_GROUP = f"group?name={GROUP}"


@pytest.fixture(scope="module", autouse=True)
def table():
    yield
    for name, doors in TIMES.items():
        cells = "  ".join(
            f"{door} {' '.join(f'{s:.1f}' for s in seconds)}"
            for door, seconds in doors.items()
        )
        print(f"\n{name}: {cells}", end="")  # noqa: T201 - the table


@pytest.fixture(scope="module")
def java():
    return prepared(Java())


@pytest.fixture(scope="module")
def go():
    return prepared(Go())


@pytest.fixture(scope="module", params=[Java, Go], ids=["java", "go"])
def client(request):
    return prepared(request.param())


class World:
    """A watched broker and the clients that were started on it."""

    def __init__(self, doors, folder, stack, name):
        self.doors, self.name = doors, name
        self._folder, self._stack = folder, stack
        self.pace = folder / "pace"
        self.paced = f"pace={self.pace}"
        wire.make_topic(doors.server.address, TOPIC, 8)

    def incident(self, view, sentence):
        return Incident(self.doors, self.name, view, sentence)

    def drive(self, client, what, *options, count=FOREVER):
        home = self._folder / f"{what}-{len(list(self._folder.iterdir()))}"
        namesrv = self.doors.server.namesrv
        driver = driving(client, home, what, namesrv, TOPIC, count, *options)
        return self._stack.enter_context(driver)

    def member(self, client, *options):
        """A consumer that has its share of the queues."""
        before = len(self.members())
        given = f"group={GROUP}", f"instance=i{before}", *options
        driver = self.drive(client, "push", *given)
        driver.wait_ready()
        wait_until(lambda: len(self.members()) > before, "it is a member")
        return driver

    def members(self):
        return wire.members(self.doors.server.address, GROUP)

    def stream(self, client, *options):
        """A sender that goes on; it has sent something."""
        topic = f"topic?name={TOPIC}"
        driver = self.drive(client, "send", *options)
        wait_until(lambda: self.doors.api(topic)["row"]["kept"] > 0, "it sends")
        return driver


@pytest.fixture
def world(request, tmp_path):
    settings = ("transactionCheckInterval=1000", "transactionTimeOut=1000")
    with ExitStack() as stack:
        doors = stack.enter_context(watched(tmp_path / "store", *settings))
        clients = tmp_path / "clients"
        clients.mkdir()
        yield World(doors, clients, stack, request.node.name.removeprefix("test_"))


def test_nobody_consumes(world, client):
    consumer = world.member(client)
    world.stream(client, "pause=50")
    consumer.wait_received(20)
    consumer.kill()
    incident = world.incident(OF_GROUP, "No client consumes; .* wait. The last client")
    incident.is_named()
    world.member(client)
    incident.is_mended()


def test_one_of_several_clients_is_slow(world, java, go):
    slow = world.member(java, "threads=1", world.paced)
    members = [slow, world.member(go), world.member(go)]
    world.stream(java, "pause=10")
    for member in members:
        member.wait_received(20)
    world.pace.write_text("700")
    incident = world.incident(OF_GROUP, "One of 3 clients is slow")
    incident.is_named()
    slow.kill()
    incident.is_mended()


def test_a_handler_is_blocked(world, client):
    consumer = world.member(client, world.paced)
    world.stream(client, "pause=50")
    consumer.wait_received(20)
    world.pace.touch()
    incident = world.incident(OF_GROUP, "finished nothing for .* blocked handler")
    incident.is_named()
    world.pace.unlink()
    incident.is_mended()


def test_members_want_different_tags(world, java, go):
    world.member(java, "tags=Tag0")
    other = world.drive(go, "push", f"group={GROUP}", "instance=other", "tags=Tag1")
    incident = world.incident(OF_GROUP, "Members have different subscriptions")
    incident.is_named()
    other.finish()
    incident.is_mended()


def test_a_key_is_hot(world, java, go):
    consumers = [world.member(each, "threads=2", world.paced) for each in (java, go)]
    world.stream(java, "pause=100")
    for consumer in consumers:
        consumer.wait_received(5)
    broker = world.doors.server.broker
    world.pace.write_text("100")
    options = "mode=orderly", "queues=1", f"broker={broker}", "pause=5"
    hot = world.drive(go, "send", *options)
    incident = world.incident(OF_GROUP, f"Queue 0 of {TOPIC} gets .* by a key")
    incident.is_named()
    hot.kill()
    world.pace.unlink()
    incident.is_mended()


def test_dead_letters_grow(world, client):
    consumer = world.member(client, "max=0", "fail=1")
    sender = world.stream(client, "pause=100")
    incident = world.incident(OF_GROUP, r"became dead letters in the last hour")
    incident.is_named()
    consumer.kill()
    sender.kill()
    mended = world.member(client)
    namesrv = world.doors.server.namesrv
    command = "admin", "resendDeadLetters", "-n", namesrv, "-g", GROUP, "--all"
    run([sys.executable, "-m", "rmq", *command], timeout_s=60)
    mended.wait_received(1)
    incident.is_mended()


def test_the_disk_fills(request, tmp_path, java):
    store = tmp_path / "store"
    store.mkdir()
    mount = f'mount -t tmpfs -o size=512m rmq {store} && exec "$0" "$@"'
    inside = ("unshare", "-rm", "sh", "-c", mount)
    if subprocess.run([*inside, "true"], check=False).returncode:
        pytest.skip("not run: no file systems of one's own on this machine")
    clients = tmp_path / "clients"
    clients.mkdir()
    with ExitStack() as stack:
        file_size = f"mappedFileSizeCommitLog={32 << 20}"
        doors = stack.enter_context(watched(store, file_size, inside=inside))
        world = World(doors, clients, stack, request.node.name.removeprefix("test_"))
        sender = world.stream(java, "size=60000", "pause=50")
        incident = world.incident("overview", "The disk reaches 75% in")
        incident.is_named()
        sender.kill()
        incident.is_mended()


class LateJava:
    """Java on a machine whose clock is late."""

    def __init__(self, java, library, late_s):
        self._java = java
        self._with = ["env", f"LD_PRELOAD={library}", f"LATE_S={late_s}"]

    def driver(self, home, *arguments):
        return [*self._with, *self._java.driver(home, *arguments)]


def test_a_clock_is_off(world, java, tmp_path):
    library = tmp_path / "late_clock.so"
    source = os.path.join(os.path.dirname(__file__), "late_clock.c")
    run(["cc", "-shared", "-fPIC", "-o", str(library), source], timeout_s=60)
    late = world.stream(LateJava(java, library, 300), "pause=50")
    incident = world.incident("overview", "The clock of sender .* is 5 min late")
    incident.is_named()
    late.kill()
    world.drive(java, "send", "pause=50")
    incident.is_mended()


def test_a_transaction_is_forgotten(world, client):
    world.pace.touch()
    options = "mode=transaction", "first=2", world.paced
    sender = world.drive(client, "send", *options, count=1)
    sender.wait(lambda: bool(sender.of("checked")), "it is asked")
    incident = world.incident("overview", "1 transaction is open although")
    incident.is_named()
    world.pace.unlink()
    incident.is_mended()


def test_a_group_is_paused(world, client, java):
    consumer = world.member(client)
    world.stream(client, "pause=50")
    consumer.wait_received(20)
    incident = world.incident(
        OF_GROUP, "The group may not consume: consumeEnable is false"
    )
    set_consuming(world, java, "false")
    incident.is_named()
    set_consuming(world, java, "true")
    incident.is_mended()


def set_consuming(world, java, value):
    """Let mqadmin pause the group, or end that."""
    run(
        java.command(
            MQADMIN, "updateSubGroup", "-b", world.doors.server.address, "-g", GROUP,
            "-s", value,
        ),
        timeout_s=60,
    )  # fmt: skip
