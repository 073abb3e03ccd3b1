"""Commands that send messages, and measure their latency."""

import time

import click

from rmq.cli.admin.base import (
    Output,
    Table,
    cluster_option,
    register_command,
    topic_option,
)
from rmq.client.admin import AdminClient, Queue, message_ids
from rmq.core.errors import RmqError
from rmq.protocol.properties import encode_properties


@register_command("sendMessage")
@topic_option
@click.option("-p", "--body", required=True)
@click.option("-k", "--key")
@click.option("-c", "--tags")
@click.option("-b", "--broker", metavar="NAME", help="Name of a broker. Needs -i.")
@click.option("-i", "--qid", "queue_id", type=int)
@click.option("-m", "--msgTraceEnable", "trace", is_flag=True, help="Ignored.")
def send_message(
    admin: AdminClient,
    topic: str,
    body: str,
    key: str | None,
    tags: str | None,
    broker: str | None,
    queue_id: int | None,
    *,
    trace: bool,
) -> Output:
    if (broker is None) != (queue_id is None):
        raise click.UsageError("give both -b and -i, or neither")
    for queue in admin.writable_queues(topic):
        if broker in (None, queue.broker) and queue_id in (None, queue.queue_id):
            message_id = message_ids(admin.link(queue.address)).next()
            properties = {"UNIQ_KEY": message_id, "KEYS": key, "TAGS": tags}
            text = encode_properties({n: v for n, v in properties.items() if v})
            now_ms = int(time.time() * 1_000)
            sent = admin.send(topic, queue, body.encode(), text, now_ms)
            row = (queue.broker, sent["queueId"], "SEND_OK", message_id)
            return Table(("brokerName", "queueId", "sendResult", "msgId"), [row])
    raise RmqError(f"topic {topic} has no such writable queue")


@register_command("checkMsgSendRT")
@topic_option
@click.option("-a", "--amount", type=click.IntRange(1), default=100)
@click.option("-s", "--size", type=click.IntRange(1), default=128)
def check_msg_send_rt(admin: AdminClient, topic: str, amount: int, size: int) -> Output:
    rows: list[tuple[object, ...]] = []
    queues = admin.writable_queues(topic)
    for number in range(amount):
        queue = queues[number % len(queues)]
        (took,) = timed_sends(admin, topic, queue, 1, size)
        rows.append((queue.broker, queue.queue_id, True, took))
    return Table(("brokerName", "queueId", "sendResult", "rt"), rows)


@register_command("clusterRT")
@click.option("-a", "--amount", type=click.IntRange(1), default=100)
@click.option("-s", "--size", type=click.IntRange(1), default=128)
@cluster_option
@click.option("-p", "--print", "log", type=click.BOOL, help="Ignored.")
@click.option("-m", "--machineRoom", "room", help="Ignored.")
@click.option("-i", "--interval", type=click.FloatRange(0), help="Ignored.")
def cluster_rt(
    admin: AdminClient,
    amount: int,
    size: int,
    cluster: str | None,
    room: str | None,
    interval: float | None,
    *,
    log: bool | None,
) -> Output:
    rows: list[tuple[object, ...]] = []
    for each in admin.masters(cluster):
        queue = Queue(each.name, each.address, 0)
        took = timed_sends(admin, each.cluster, queue, amount, size)
        rows.append((each.cluster, each.name, sum(took) / len(took), max(took), amount))
    return Table(("cluster", "brokerName", "meanRT", "maxRT", "successCount"), rows)


@register_command("sendMsgStatus")
@click.option("-b", "--brokerName", "broker", required=True)
@click.option("-s", "--messageSize", "size", type=click.IntRange(1), default=128)
@click.option("-c", "--count", type=click.IntRange(1), default=50)
def send_msg_status(admin: AdminClient, broker: str, size: int, count: int) -> Output:
    (queue, *_) = admin.writable_queues(broker)
    took = timed_sends(admin, broker, queue, count, size)
    return Table(("number", "rt"), list(enumerate(took, 1)))


def timed_sends(
    admin: AdminClient, topic: str, queue: Queue, count: int, size: int
) -> list[float]:
    """Send messages one after another; return the latency of each in milliseconds."""
    took = []
    for _ in range(count):
        start = time.perf_counter()
        admin.send(topic, queue, b"a" * size, "", int(time.time() * 1_000))
        took.append((time.perf_counter() - start) * 1_000)
    return took
