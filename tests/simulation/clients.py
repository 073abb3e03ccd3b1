"""Producers and consumers of a simulation, and what the controller says of the group.

They speak the protocol themselves: one request, one answer, nothing sent again; so a
history knows exactly what was asked and what was promised.
"""

import itertools
import json
import random
from collections.abc import Mapping

import trio

from rmq.core.errors import RmqError
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pull import PullMessageRequestHeader
from rmq.protocol.headers.send import SendMessageRequestHeader
from rmq.protocol.properties import KEYS, encode_properties
from rmq.protocol.records import decode_stored
from rmq.remoting.client import RemotingClient
from tests.history import History, Place
from tests.simulation.network import MACHINE
from tests.simulation.world import BROKER_PORT, CONTROLLER, CONTROLLER_PORT, GROUP

CLIENTS = "10.0.0.9"
TOPIC, QUEUES = "Kept", 2
TIMEOUT_MS = 4_000
PULL_S = 2.0
HAS_SUBSCRIPTION = 4
SUSPENDS = 2


class Client:
    """One machine with clients on it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._remoting = RemotingClient()
        self.master = ""

    async def run(self, *, task_status=trio.TASK_STATUS_IGNORED) -> None:
        MACHINE.set(self._address)
        await self._remoting.run(task_status=task_status)

    async def ask(self, address: str, command: Command) -> Command:
        MACHINE.set(self._address)
        return await self._remoting.invoke(address, command, TIMEOUT_MS)

    async def state(self) -> dict:
        """What the controller says of the group; nothing if it does not answer."""
        command = Command.request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)
        command.body = json.dumps([GROUP]).encode()
        try:
            answer = await self.ask(f"{CONTROLLER}:{CONTROLLER_PORT}", command)
        except RmqError:
            return {}
        if answer.code != ResponseCode.SUCCESS:
            return {}
        return json.loads(answer.body)["replicasInfoTable"].get(GROUP, {})

    async def find_master(self) -> None:
        """Learn who the master is, at the second try if need be."""
        self.master = (await self.state()).get("masterAddress") or ""
        if not self.master:
            await trio.sleep(0.5)

    async def pull(
        self, address: str, queue: int, offset: int, wait_s: float, topic: str = TOPIC
    ):
        """Return the code, the messages, and where to go on."""
        header = PullMessageRequestHeader(
            consumer_group="C",
            topic=topic,
            queue_id=queue,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=HAS_SUBSCRIPTION | (SUSPENDS if wait_s else 0),
            commit_offset=0,
            suspend_timeout_millis=int(wait_s * 1000),
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        command = Command.request(RequestCode.PULL_MESSAGE, header)
        answer = await self.ask(address, command)
        found = []
        if answer.code == ResponseCode.SUCCESS:
            found = decode_stored(answer.body)
        return answer.code, found, int(answer.ext_fields.get("nextBeginOffset", 0))


class Producer:
    """Sends numbers to one queue, each once."""

    def __init__(self, client: Client, queue: int, chance: random.Random) -> None:
        self._client, self._queue, self._chance = client, queue, chance
        self.acknowledged = 0
        self.began = trio.Event()
        """Set when something is acknowledged."""

    async def run(self, history: History, note) -> None:
        for number in itertools.count():
            await trio.sleep(self._chance.expovariate(5))
            key = f"{self._queue}:{number}"
            if not self._client.master:
                await self._client.find_master()
                continue
            history.invoke(key, self._queue)
            try:
                answer = await self._client.ask(self._client.master, self._send(key))
            except RmqError as error:
                note(f"send {key}: {type(error).__name__}")
                self._client.master = ""
                continue
            place = None
            if answer.code == ResponseCode.SUCCESS:
                self.acknowledged += 1
                self.began.set()
                offset = int(answer.ext_fields["queueOffset"])
                place = Place(TOPIC, self._queue, offset)
            else:
                self._client.master = ""
            history.answer(key, answer.code, place)
            note(f"send {key}: {answer.code} {place.offset if place else '-'}")

    def _send(self, key: str) -> Command:
        size = self._chance.randrange(600)
        body = key.encode() + b" " + b"." * size
        return send_of(TOPIC, body, queue=self._queue, properties={KEYS: key})


class Consumer:
    """Reads one queue from its beginning, wherever the master is."""

    def __init__(self, client: Client, queue: int) -> None:
        self._client, self._queue = client, queue
        self.reads: list[tuple[str, Place]] = []

    async def run(self, note) -> None:
        offset = 0
        while True:
            if not self._client.master:
                await self._client.find_master()
                continue
            try:
                code, found, offset_after = await self._client.pull(
                    self._client.master, self._queue, offset, PULL_S
                )
            except RmqError:
                self._client.master = ""
                continue
            self.reads += read_of(found)
            if found:
                note(f"read {self._queue}: {offset} to {offset_after}")
            if code in (ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED):
                offset = offset_after
            elif code not in (
                ResponseCode.PULL_NOT_FOUND,
                ResponseCode.PULL_RETRY_IMMEDIATELY,
            ):
                self._client.master = ""
                await trio.sleep(0.2)


class Wanderer:
    """Reads one queue from any broker; what it has read once must stay."""

    def __init__(
        self, client: Client, queue: int, hosts: list[str], chance: random.Random
    ) -> None:
        self._client, self._queue = client, queue
        self._hosts, self._chance = hosts, chance
        self.reads: list[tuple[str, Place]] = []

    async def run(self, _note) -> None:
        offset = 0
        while True:
            await trio.sleep(self._chance.uniform(0, 1))
            address = f"{self._chance.choice(self._hosts)}:{BROKER_PORT}"
            try:
                code, found, after = await self._client.pull(
                    address, self._queue, offset, 0
                )
            except RmqError:
                continue
            self.reads += read_of(found)
            if code == ResponseCode.SUCCESS:
                offset = after


def send_of(
    topic: str,
    body: bytes,
    *,
    queue: int = 0,
    sys_flag: int = 0,
    properties: Mapping[str, str] | None = None,
) -> Command:
    """Return the request that sends one message."""
    header = SendMessageRequestHeader(
        producer_group="P",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue,
        sys_flag=sys_flag,
        born_timestamp=0,
        flag=0,
        properties=encode_properties(dict(properties or {})),
    )
    return Command.request(RequestCode.SEND_MESSAGE, header, body)


def read_of(found, topic: str = TOPIC) -> list[tuple[str, Place]]:
    """Return keys and places; another key if a message has two that differ."""
    reads = []
    for each in found:
        key = each.body.split()[0].decode()
        other = each.properties.get(KEYS, key)
        key = key if other == key else f"{key} with {other}"
        reads.append((key, Place(topic, each.queue_id, each.queue_offset)))
    return reads


async def read_all(
    client: Client, host: str, topic: str = TOPIC
) -> list[tuple[str, Place]]:
    """Return everything that a broker serves of a topic."""
    reads = []
    for queue in range(QUEUES):
        offset = 0
        while True:
            code, found, after = await client.pull(
                f"{host}:{BROKER_PORT}", queue, offset, 0, topic
            )
            if code != ResponseCode.SUCCESS and after <= offset:
                break
            reads += read_of(found, topic)
            offset = after
    return reads
