"""What clients of some seeds do beside sending and pulling: each with its own check.

* `Transactions`: what was committed is there, what was rolled back or left open is not.
* `Delays`: what was acknowledged is delivered, and not before its time.
* `Pops`: everything is popped, whoever dies between a pop and its ack.
* `Retries`: each key is stored once, however often it is sent.

A load has topics of its own; the first word of a body is its key.
"""

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import trio

from rmq.core.errors import RmqError
from rmq.protocol import properties as names
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import (
    AckMessageRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rmq.protocol.headers.send import SendMessageResponseHeader
from rmq.protocol.headers.transaction import EndTransactionRequestHeader
from rmq.protocol.records import decode_stored
from tests.history import History, Place
from tests.simulation.clients import QUEUES, Client, read_of, send_of
from tests.simulation.world import GROUP

PREPARED, COMMIT, ROLLBACK = 4, 8, 12
DELAY_S = 1.0
"""Of level 1."""

INVISIBLE_MS = 5_000
LEFT_S = 120.0
"""So long it takes at most to ack all that is left."""

EMPTY_S = 12.0
"""So long nothing is left to pop: longer than a pop without an ack."""

Note = Callable[[str], None]


class Load(ABC):
    """One task of clients, and its history."""

    topic = ""
    delayed: tuple[str, ...] = ()
    late_s = 0.0
    """So much later than it was acknowledged everything is there."""

    settings: ClassVar[Mapping[str, str]] = {}
    """What brokers need for it."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self.history = History()
        self.faults: list[str] = []
        self._client, self._chance = client, chance
        self._keys = (f"{self.topic}:{number}" for number in itertools.count())

    async def run(self, note: Note) -> None:
        """Go on until cancelled; a master that does not answer is looked for."""
        while True:
            await trio.sleep(self._chance.expovariate(2))
            if not self._client.master:
                await self._client.find_master()
                continue
            try:
                note(f"{self.topic}: {await self._turn()}")
            except RmqError as error:
                note(f"{self.topic}: {type(error).__name__}")
                self._client.master = ""

    @abstractmethod
    async def _turn(self) -> str:
        """Do one thing; return a line for the history."""

    async def _send(
        self, key: str, sys_flag: int = 0, queue: int = 0, **properties: str
    ) -> Command:
        command = send_of(
            self.topic,
            key.encode(),
            queue=queue,
            sys_flag=sys_flag,
            properties=properties,
        )
        answer = await self._client.ask(self._client.master, command)
        if answer.code != ResponseCode.SUCCESS:
            self._client.master = ""
        return answer


class Transactions(Load):
    """Half messages, and what becomes of them."""

    topic = "Bought"

    async def _turn(self) -> str:
        key = next(self._keys)
        named = {names.TRAN_MSG: "true", names.PRODUCER_GROUP: "P"}
        half = await self._send(key, PREPARED, **named)
        self.history.invoke(key)
        end = self._chance.choice([COMMIT, COMMIT, ROLLBACK, 0])
        if half.code != ResponseCode.SUCCESS or end != COMMIT:
            self.history.answer(key, ResponseCode.SYSTEM_ERROR)  # nobody may see it
        if half.code != ResponseCode.SUCCESS or not end:
            return f"{key} is left open"
        await trio.sleep(self._chance.expovariate(4))
        sent = half.header(SendMessageResponseHeader)
        header = EndTransactionRequestHeader(
            topic=self.topic,
            producer_group="P",
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=int(sent.msg_id[-16:], 16),
            commit_or_rollback=end,
            msg_id=sent.msg_id,
        )
        command = Command.request(RequestCode.END_TRANSACTION, header)
        answer = await self._client.ask(self._client.master, command)
        if end == COMMIT and answer.code == ResponseCode.SUCCESS:
            self.history.answer(key)
        return f"{key} ends with {end}: {answer.code}"


class Delays(Load):
    """Messages of a delay level; their brokers have one time."""

    topic = "Later"
    delayed = (topic,)
    late_s = 15.0

    def __init__(self, client: Client, chance: random.Random) -> None:
        super().__init__(client, chance)
        self._due_s: dict[str, float] = {}
        self._next = [0] * QUEUES

    async def _turn(self) -> str:
        if self._chance.random() < 0.5:
            return f"looked, {await self._look()}"
        key = next(self._keys)
        self._due_s[key] = trio.current_time() + DELAY_S
        self.history.invoke(key)
        answer = await self._send(key, **{names.DELAY: "1"})
        self.history.answer(key, answer.code)
        return f"{key}: {answer.code}"

    async def _look(self) -> int:
        """Read what has been delivered since; return how many came."""
        count = 0
        for queue in range(QUEUES):
            code, found, after = await self._client.pull(
                self._client.master, queue, self._next[queue], 0, self.topic
            )
            if code == ResponseCode.SUCCESS:
                self._next[queue] = after
            for key, _ in read_of(found, self.topic):
                count += 1
                if trio.current_time() < self._due_s[key]:
                    self.faults.append(f"{key} came before its time")
        return count


class Pops(Load):
    """Messages that are popped and acked."""

    topic = "Popped"
    settings: ClassVar = {
        "timerWheelEnable": "true",
        "mappedFileSizeTimerLog": "102400",
    }

    def __init__(self, client: Client, chance: random.Random) -> None:
        super().__init__(client, chance)
        self.popped: list[tuple[str, None]] = []

    async def _turn(self) -> str:
        if self._chance.random() < 0.5:
            return " ".join(["popped", *await self.pop(acks=0.7)])
        key = next(self._keys)
        self.history.invoke(key)
        answer = await self._send(key)
        self.history.answer(key, answer.code)
        return f"{key}: {answer.code}"

    async def pop(self, acks: float) -> list[str]:
        """Pop once, ack some; return the keys that came."""
        header = PopMessageRequestHeader(
            consumer_group="G",
            topic=self.topic,
            queue_id=-1,
            max_msg_nums=32,
            invisible_time=INVISIBLE_MS,
            poll_time=0,
            born_time=0,
            init_mode=0,
        )
        command = Command.request(RequestCode.POP_MESSAGE, header)
        answer = await self._client.ask(self._client.master, command)
        if answer.code != ResponseCode.SUCCESS:
            return []
        keys = [
            record.body.split()[0].decode() for record in decode_stored(answer.body)
        ]
        for key, ack in zip(keys, self._acks_of(answer), strict=True):
            self.popped.append((key, None))
            if self._chance.random() < acks:
                request = Command.request(RequestCode.ACK_MESSAGE, ack)
                await self._client.ask(self._client.master, request)
        return keys

    async def pop_all(self) -> None:
        """Pop what is left, also what was popped without an ack."""
        began_s = full_s = trio.current_time()
        while trio.current_time() < full_s + EMPTY_S:
            await self._client.find_master()
            try:
                if await self.pop(acks=1.0):
                    full_s = trio.current_time()
            except RmqError:
                self._client.master = ""
            await trio.sleep(0.5)
            if full_s > began_s + LEFT_S:
                self.faults.append(f"messages come for ever, after {LEFT_S:g} s, too")
                return

    def _acks_of(self, answer: Command) -> Iterator[AckMessageRequestHeader]:
        head = answer.header(PopMessageResponseHeader)
        starts = {}
        for text in (head.start_offset_info or "").split(";"):
            flag, queue_id, start = text.split(" ")
            starts[flag, queue_id] = start
        for text in (head.msg_offset_info or "").split(";"):
            flag, queue_id, offsets = text.split(" ")
            for offset in offsets.split(","):
                handle = (
                    f"{starts[flag, queue_id]} {head.pop_time} {head.invisible_time} "
                    f"{head.revive_qid} {flag} {GROUP} {queue_id} {offset}"
                )
                yield AckMessageRequestHeader(
                    consumer_group="G",
                    topic=self.topic if flag == "0" else f"%RETRY%G_{self.topic}",
                    queue_id=int(queue_id),
                    extra_info=handle,
                    offset=int(offset),
                )


class Retries(Load):
    """Sends with a key that are tried until they succeed, and sometimes once more.

    The window is longer than any jump of a clock.
    """

    topic = "Once"
    settings: ClassVar = {"rmq.onceWindowMs": "86400000"}

    async def _turn(self) -> str:
        key = next(self._keys)
        self.history.invoke(key)
        place = await self._retry(key)
        self.history.answer(key, ResponseCode.SUCCESS, place)
        again = await self._try(key) if self._chance.random() < 0.3 else None
        if again not in (place, None):
            self.faults.append(f"{key} was stored at {place}, and at {again}")
        return f"{key} at {place.queue_id}:{place.offset}"

    async def _retry(self, key: str) -> Place:
        while True:
            place = await self._try(key)
            if place is not None:
                return place
            await trio.sleep(self._chance.expovariate(4))
            await self._client.find_master()

    async def _try(self, key: str) -> Place | None:
        """Send to any queue; return where the message is, None if nobody knows."""
        queue = self._chance.randrange(QUEUES)
        try:
            answer = await self._send(key, queue=queue, **{names.UNIQ_KEY: key})
        except RmqError:
            return None
        if answer.code != ResponseCode.SUCCESS:
            return None
        sent = answer.header(SendMessageResponseHeader)
        return Place(self.topic, sent.queue_id, sent.queue_offset)


KINDS: tuple[type[Load], ...] = Transactions, Delays, Pops, Retries
SHARE = 0.3
"""Of the seeds that have each of them."""


def of_seed(client: Client, seed: int, *, sets_clocks: bool) -> list[Load]:
    """Return the loads of a seed."""
    return [
        kind(client, _chance_of(kind, seed))
        for kind in KINDS
        if has_load(kind.topic, seed) and not (sets_clocks and kind is Delays)
    ]


def has_load(topic: str, seed: int) -> bool:
    """Return whether a seed has the load of a topic, unless it sets clocks."""
    return random.Random(f"{topic} {seed}").random() < SHARE


def _chance_of(kind: type[Load], seed: int) -> random.Random:
    """Return the choices of a load: those after the choice of the load itself."""
    chance = random.Random(f"{kind.topic} {seed}")
    chance.random()
    return chance
