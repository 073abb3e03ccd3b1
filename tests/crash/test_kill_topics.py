"""kill -9 right after a send that made its topic was answered: the topic is there."""

import signal
import socket
import time

import pytest

from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from tests.crash.laboratory import broker, dice, rounds

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]


def ask(connection, code, body=b"", **fields):
    request = Command.request(code, body=body)
    request.ext_fields = {name: str(value) for name, value in fields.items()}
    connection.sendall(encode(request))
    decoder = FrameDecoder()
    while True:
        data = connection.recv(65536)
        assert data, "the broker closed the connection"
        for frame in decoder.feed(data):
            return frame


def send(connection, topic):
    return ask(
        connection, RequestCode.SEND_MESSAGE, b"x", producerGroup="P", topic=topic,
        defaultTopic="TBW102", defaultTopicQueueNums=7, queueId=0, sysFlag=0,
        bornTimestamp=1, flag=0, properties="", reconsumeTimes=0, unitMode="false",
        batch="false",
    )  # fmt: skip


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_topic_that_a_send_made_survives(tmp_path, flush):
    chance = dice()
    answered = []
    for number in range(rounds(10)):
        with broker(tmp_path, flush) as (child, address):
            with socket.create_connection(address, timeout=10) as connection:
                for name in answered:
                    answer = ask(connection, RequestCode.GET_TOPIC_CONFIG, topic=name)
                    assert answer.code == 0, name
                    assert TopicConfig.decode(answer.body).write_queue_nums == 7
                for each in range(5):
                    name = f"T{number}-{each}"
                    assert send(connection, name).code == 0
                    answered.append(name)
                time.sleep(chance.choice([0.0, 0.01, 0.1]))
                child.send_signal(signal.SIGKILL)
            child.wait(20)
    assert len(answered) >= 10
