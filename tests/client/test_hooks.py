"""Hooks: what they learn, and that their failures stop no message."""

from contextlib import contextmanager

from rmq.client import Client, Consumer, Message, Producer


class Notes:
    """A hook that writes down what it learns."""

    def __init__(self):
        self.lines = []

    def before_send(self, group, messages):
        self.lines.append(("before", group, [each.body for each in messages]))
        return {"noted": "yes"}, lambda outcome: self.lines.append(("after", outcome))

    def after_receive(self, group, messages):
        self.lines.append(("after_receive", group, [each.body for each in messages]))

    @contextmanager
    def around_handler(self, group, messages):
        self.lines.append(("begin", group, [each.body for each in messages]))
        yield
        self.lines.append(("end",))


class Broken:
    """A hook that fails whenever it is asked."""

    def before_send(self, group, messages):
        raise RuntimeError("before")

    def after_receive(self, group, messages):
        raise RuntimeError("after_receive")

    def around_handler(self, group, messages):
        raise RuntimeError("around_handler")


def test_a_broken_hook_stops_neither_messages_nor_other_hooks(broker, loop):
    topic, notes = f"hooks-{loop.name}", Notes()

    async def scenario():
        async with (
            Client(broker.name_server, hooks=[Broken(), notes]) as client,
            Producer(client) as producer,
        ):
            message = Message(topic, b"1", properties={"noted": "by the program"})
            results = [await producer.send(message)]
            results.append(await (await producer.enqueue(Message(topic, b"2"))))
            group = f"hooked-{topic}"
            async with Consumer(client, group, topic, start="first") as it:

                def stop(messages):
                    if len(seen := [*seen_before, *messages]) == 2:
                        it.stop()
                    seen_before[:] = seen

                seen_before = []
                await it.run(stop, concurrency=1, batch=2)
            return results, {each.properties["noted"] for each in seen_before}

    results, noted = loop(scenario)
    assert noted == {"by the program", "yes"}
    sent = [line for line in notes.lines if line[0] in ("before", "after")]
    assert sent == [
        ("before", "rmq-python", [b"1"]),
        ("after", [results[0]]),
        ("before", "rmq-python", [b"2"]),
        ("after", [results[1]]),
    ]
    begun = [line for line in notes.lines if line[0] == "begin"]
    assert len(begun) == notes.lines.count(("end",))
    assert sorted(body for line in begun for body in line[2]) == [b"1", b"2"]


def test_a_message_that_is_not_sent_ends_too(broker, loop):
    notes = Notes()

    async def scenario():
        async with (
            Client(broker.name_server, hooks=[notes]) as client,
            Producer(client, max_message_bytes=4) as producer,
        ):
            for send in (producer.send, producer.enqueue):
                try:
                    await send(Message("Unsent", b"apples"))
                except ValueError as error:
                    notes.lines.append(error)

    loop(scenario)
    raised = [line for line in notes.lines if isinstance(line, ValueError)]
    assert notes.lines[1::3] == [("after", error) for error in raised]
    assert len(raised) == 2
