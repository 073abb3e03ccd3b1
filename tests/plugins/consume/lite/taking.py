"""A client of lite topics, on a caller: subscribes, pops, acks, lets time pass."""

import json

import trio
import trio.testing

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import decode_stored
from rmq_plugins.consume.lite import LiteOnUse
from tests.plugins.conftest import RecordingConnection

INVISIBLE_MS = 60_000
PARENT, GROUP = "Parent", "lite-group"
LMQ = {"lmq_enabled": True, "multi_dispatch_enabled": True}


class Taken:
    """A message, and what its ack needs."""

    def __init__(self, record, fields, count):
        self.body = record.body
        self.lite = record.properties["__LITE_TOPIC"]
        self.offset = int(record.properties["INNER_MULTI_QUEUE_OFFSET"])
        self.count = int(count)
        self.pop_ms = int(fields["popTime"])
        self.handle = " ".join([
            "0", fields["popTime"], fields["invisibleTime"], fields["reviveQid"], "0",
            "broker-a", "0", str(self.offset),
        ])  # fmt: skip


class Broker:
    """A caller with a parent topic and a lite group."""

    def __init__(self, caller, **attributes):
        self.caller = caller
        self.clock = caller.broker.clock
        caller.topic(PARENT, attributes={"message.type": "LITE"})
        self.group(GROUP, **attributes)

    def group(self, name, topic=PARENT, **attributes):
        texts = {f"lite.sub.{key}": text for key, text in attributes.items()}
        texts = {"lite.bind.topic": topic, **texts}
        texts = {f"+{key.replace('_', '.')}": text for key, text in texts.items()}
        body = json.dumps({"groupName": name, "attributes": texts}).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        answer = self.caller.call(code, body=body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def send(self, lite, body=b"hello", topic=PARENT):
        properties = f"__LITE_TOPIC\x01{lite}\x02"
        answer = self.caller.send(topic, body, properties=properties)
        self.caller.report_arrivals()
        return answer

    @property
    def parts(self):
        return self.caller.find(LiteOnUse).get_parts()

    def run(self, work):
        """What a task does when it wakes up."""
        trio.run(work)

    def pass_ms(self, duration_ms):
        self.clock.ms += duration_ms
        self.run(self.parts.dispatch.dispatch_due)

    def run_held(self):
        """Answer the POPs that were woken, or whose time is over."""

        async def until_it_waits():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.parts.held.run)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()

        trio.run(until_it_waits)

    def lose_events(self, client_id):
        self.parts.dispatch.events.drop(client_id)

    def committed(self, lite, group=GROUP):
        offsets = self.caller.broker.offsets
        return offsets.query(group, f"%LMQ%${PARENT}${lite}", 0)


class Client:
    """One client of the group."""

    def __init__(self, broker, client_id="c1", group=GROUP, topic=PARENT):
        self.broker, self.caller = broker, broker.caller
        self.client_id, self.group, self.topic = client_id, group, topic
        self.connection = RecordingConnection(40_000 + len(client_id))

    def change(self, action, *names, **more):
        entry = {
            "action": action, "clientId": self.client_id, "group": self.group,
            "topic": self.topic, "liteTopicSet": list(names), "version": 1, **more,
        }  # fmt: skip
        body = json.dumps({"subscriptionSet": [entry]}).encode()
        code = RequestCode.LITE_SUBSCRIPTION_CTL
        return self.caller.call(code, body=body, connection=self.connection)

    def subscribe(self, *names, **more):
        answer = self.change("PARTIAL_ADD", *names, **more)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def ask(self, **more):
        fields = {
            "clientId": self.client_id, "consumerGroup": self.group,
            "topic": self.topic, "maxMsgNum": 32, "invisibleTime": INVISIBLE_MS,
            "pollTime": 0, "bornTime": 0, **more,
        }  # fmt: skip
        code = RequestCode.POP_LITE_MESSAGE
        return self.caller.call(code, fields, connection=self.connection)

    def pop(self, **more):
        return self.read(self.ask(**more))

    def read(self, answer):
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code in (209, 210), answer.remark
            return []
        records = decode_stored(answer.body)
        counts = answer.ext_fields["orderCountInfo"].split(";")
        pairs = zip(records, counts, strict=True)
        return [Taken(record, answer.ext_fields, count) for record, count in pairs]

    def ack(self, message, **more):
        fields = {
            "consumerGroup": self.group, "topic": self.topic, "queueId": 0,
            "extraInfo": message.handle, "offset": message.offset,
            "liteTopic": message.lite, **more,
        }  # fmt: skip
        code = RequestCode.ACK_MESSAGE
        return self.caller.call(code, fields, connection=self.connection)

    def change_time(self, message, invisible_ms, **more):
        fields = {
            "consumerGroup": self.group, "topic": self.topic, "queueId": 0,
            "extraInfo": message.handle, "offset": message.offset,
            "liteTopic": message.lite, "invisibleTime": invisible_ms, **more,
        }  # fmt: skip
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        return self.caller.call(code, fields, connection=self.connection)
