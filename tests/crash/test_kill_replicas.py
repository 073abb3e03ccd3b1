"""kill -9 of master and slave in turn: what was acknowledged is in the slave.

The master is a SYNC_MASTER that waits for its slave.  After each kill the slave's
directory is opened as a master would open it: every acknowledged message is there,
once, in its place, and the log is the beginning of the master's.
"""

import json
import signal
import time
from contextlib import ExitStack

import pytest

from rmq.protocol.codes import RequestCode
from rmq.testing import NameServerThread
from tests.crash.laboratory import (
    Load,
    broker,
    dice,
    kept,
    open_copy,
    rounds,
)
from tests.interop import wire
from tests.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

ROUNDS_OF_A_STORE = 10
WAIT_S = 20
GROUP = {"brokerName": "pair", "slaveTimeout": 2_000, "haSendHeartbeatInterval": 500}


def state_of(address):
    answer = wire.call("{}:{}".format(*address), RequestCode.GET_BROKER_RUNTIME_INFO)
    return json.loads(answer.body)["table"].get("rmq.replica.state", "")


def wait_for_slave(address):
    wait_until(lambda: state_of(address).startswith("following "), "it follows", WAIT_S)


def log_of(root):
    files = sorted((root / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_pair_keeps_its_word(tmp_path, flush):
    chance, load = dice(), Load()
    killed = acknowledged = late = 0
    with NameServerThread(tmp_path / "namesrv") as namesrv:
        more = GROUP | {"namesrvAddr": namesrv.address}
        for number in range(rounds(20)):
            part = number // ROUNDS_OF_A_STORE
            roots = [tmp_path / f"{name}{part}" for name in ("master", "slave")]
            if number % ROUNDS_OF_A_STORE == 0:
                load = Load()
            before = len(load.acknowledged)
            with ExitStack() as opened:
                master, address = opened.enter_context(
                    broker(
                        roots[0], flush, brokerRole="SYNC_MASTER", inSyncReplicas=2,
                        **more,
                    )
                )  # fmt: skip
                slave, slave_address = opened.enter_context(
                    broker(roots[1], flush, brokerRole="SLAVE", brokerId=1, **more)
                )
                wait_for_slave(slave_address)
                victims = [master, slave] if number % 2 else [slave, master]

                def kill(victims=victims, has_pause=number % 4 > 1):
                    victims[0].send_signal(signal.SIGKILL)
                    if has_pause:  # the other one meets what comes then
                        time.sleep(chance.uniform(0, 0.2))
                    victims[1].send_signal(signal.SIGKILL)

                load.run(address, chance.uniform(0.05, 0.5), kill)
                for victim in victims:
                    victim.wait(20)
            late += len(load.refused)
            assert {answer.code for answer in load.refused} <= {12}
            load.refused.clear()
            copy = tmp_path / "copy" / str(number)
            with kept(roots[1], load, copy) as store:
                end = store.log.end_offset
            own = tmp_path / "master copy" / str(number)
            open_copy(roots[0], own).close()  # with what is in its ring
            assert log_of(roots[1])[:end] == log_of(own)[:end]
            acknowledged += len(load.acknowledged) - before
            killed += 2
    print(  # noqa: T201
        f"{flush}: {killed} kills of a pair, {acknowledged} acknowledged, {late} too "
        "late, 0 lost, 0 repeated on the slave"
    )
    assert acknowledged > 20 * killed
