"""A client that pops, acks and lets time pass, on a caller."""

import trio

from rmq.protocol.codes import RequestCode
from rmq.protocol.records import decode_stored
from rmq_plugins.consume.pop.handler import PopHandler
from rmq_plugins.timer.deliver import Deliveries

INVISIBLE_MS = 60_000


class Popped:
    """One message with what its ack needs."""

    def __init__(self, record, handle, topic):
        self.record = record
        self.body = record.body
        self.handle = handle
        self.topic = topic
        fields = handle.split(" ")
        self.queue_id, self.offset = int(fields[6]), int(fields[7])


class Popping:
    """The requests of a consumer."""

    def __init__(self, caller, group="G", topic="T"):
        self.caller = caller
        self.group = group
        self.topic = topic
        self.clock = caller.broker.clock

    def ask(self, **more):
        fields = {
            "consumerGroup": self.group, "topic": self.topic, "queueId": -1,
            "maxMsgNums": 32, "invisibleTime": INVISIBLE_MS, "pollTime": 0,
            "bornTime": 0, "initMode": 0, "order": "false", **more,
        }  # fmt: skip
        return self.caller.call(RequestCode.POP_MESSAGE, fields)

    def pop(self, **more):
        return self.read(self.ask(**more))

    def read(self, answer):
        """Return the messages of an answer, each with its handle, as clients do."""
        if answer.code != 0:
            assert answer.code in (209, 210), answer.remark
            return []
        fields = answer.ext_fields
        starts = {}
        for text in filter(None, fields["startOffsetInfo"].split(";")):
            flag, queue_id, start = text.split(" ")
            starts[flag, queue_id] = start
        handles = []
        for text in filter(None, fields["msgOffsetInfo"].split(";")):
            flag, queue_id, offsets = text.split(" ")
            handles += [
                " ".join([
                    starts[flag, queue_id], fields["popTime"], fields["invisibleTime"],
                    fields["reviveQid"], flag, self.caller.broker.config.broker_name,
                    queue_id, offset,
                ])
                for offset in offsets.split(",")
            ]  # fmt: skip
        records = decode_stored(answer.body)
        assert len(records) == len(handles)
        found = []
        for record, handle in zip(records, handles, strict=True):
            flag = handle.split(" ")[4]
            if flag != "0":
                assert record.properties["POP_CK"] == handle
            assert record.topic == self.topic
            name = {"0": self.topic}.get(flag, f"%RETRY%{self.group}_{self.topic}")
            if flag == "2":
                name = f"%RETRY%{self.group}+{self.topic}"
            found.append(Popped(record, handle, name))
        return found

    def ack(self, message, **more):
        fields = {
            "consumerGroup": self.group, "topic": message.topic,
            "queueId": message.queue_id, "offset": message.offset,
            "extraInfo": message.handle, **more,
        }  # fmt: skip
        return self.caller.call(RequestCode.ACK_MESSAGE, fields)

    def change(self, message, invisible_ms, **more):
        fields = {
            "consumerGroup": self.group, "topic": message.topic,
            "queueId": message.queue_id, "offset": message.offset,
            "extraInfo": message.handle, "invisibleTime": invisible_ms, **more,
        }  # fmt: skip
        answer = self.caller.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        if answer.code == 0:
            parts = message.handle.split(" ")
            own = answer.ext_fields
            parts[0] = str(message.offset)
            parts[1:4] = own["popTime"], own["invisibleTime"], own["reviveQid"]
            message.handle = " ".join(parts)
        return answer

    @property
    def reviver(self):
        return self.caller.handlers[RequestCode.POP_MESSAGE].made().reviver

    @property
    def handler(self):
        return self.caller.find(PopHandler)

    def committed(self, queue_id=0, topic=None):
        return self.caller.broker.offsets.query(
            self.group, topic or self.topic, queue_id
        )

    def work(self, ms=0):
        """Let time pass, and the tasks do what is due."""
        self.clock.ms += ms
        timer, reviver = self.caller.find(Deliveries), self.reviver

        async def run():
            for _ in range(3):
                while timer.enqueue_batch():
                    pass
                while (slot := timer.due_slot()) is not None:
                    await timer.deliver(slot)
                timer.enqueue_batch()
                self.caller.broker.store.durability.flush()
                for queue_id in range(self.caller.broker.config.revive_queue_nums):
                    while reviver.read_batch(queue_id):
                        pass
                await reviver.revive_due()
                await reviver.tick()
                self.caller.broker.store.durability.flush()
            await reviver.tick()

        trio.run(run)
