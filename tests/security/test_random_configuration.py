"""Hostile changes of the configuration, by requests 25 and 318, end no process.

A start with the file that they left behind works too.

RMQ_CONFIG_CHANGES says how many there are; the long run takes 100,000.
"""

import os
import random
import typing

import pytest
import trio

from rmq.cluster.config import ReplicationConfig
from rmq.config.broker import BrokerConfig
from rmq.config.keys import unused_keys
from rmq.config.option import options, read_properties
from rmq.namesrv.config import NamesrvConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.store.config import StoreConfig
from rmq.testing import RawClient, running_node

CHANGES = int(os.environ.get("RMQ_CONFIG_CHANGES", "10000"))
CHANGES_OF_A_LIFE = 2_000
CLASSES = (BrokerConfig, StoreConfig, ReplicationConfig, NamesrvConfig)
PLACES = {
    mark.key: (mark, typing.get_type_hints(kind)[field.name])
    for kind in CLASSES
    for field, mark in options(kind)
}
DYNAMIC = sorted(key for key, (mark, _) in PLACES.items() if mark.dynamic)
FIXED = sorted(PLACES.keys() - set(DYNAMIC))
STRANGE_KEYS = [
    "",
    "x",
    "listenPort\\u0000",
    "ключ",
    "a" * 300,
    "rmq.",
    "brokerName ",
    "__class__",
]
HOSTILE = [
    "9" * 400, "-" + "9" * 400, str(2**63), str(2**63 - 1), str(-(2**63)), str(2**31),
    str(2**31 - 1), "-1", "0", "1", "NaN", "Infinity", "-Infinity", "1e400", "1e-400",
    "0x10", "1_000", "+5", " 7 ", "", " ", "true", "false", "TRUE", "null", "None",
    "[]", "{}", "a\\nlistenPort=1", "a\\r\\n#", "\\u0000", "\\uD800", "\\u202E",
    "日本", "٣", "v" * 5_000, "../../etc", "/dev/null", "${HOME}", "0;0", "10;;99",
    "04", "99", "x=y", ";", ",", "$(id)", "%s%n",
]  # fmt: skip


def random_change(rng):
    """A key, often one that may change, and a value that may not be one."""
    kind = rng.random()
    if kind < 0.85:
        key = rng.choice(DYNAMIC)
    elif kind < 0.95:
        key = rng.choice(FIXED)
    else:
        key = rng.choice([*STRANGE_KEYS, *sorted(unused_keys())[:50]])
    return key, random_value(rng, key)


def random_value(rng, key):
    if key not in PLACES or rng.random() < 0.4:
        return rng.choice(HOSTILE)
    mark, kind = PLACES[key]
    if kind is bool:
        return rng.choice(["true", "false"])
    if mark.low is None:
        return rng.choice(HOSTILE)
    ends = [mark.low, mark.high, mark.low - 1, mark.high + 1]
    return str(rng.choice([*ends, rng.randint(int(mark.low), int(mark.high))]))


class Life:
    """A node from a start to its stop, with the files that it had before."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "broker.conf"
        self.taken = self.refused = 0

    async def live(self, rng, changes):
        settings = {"brokerConfigPath": str(self.file)}
        if self.file.exists():
            settings = read_properties(self.file) | settings
        async with running_node(self.folder / "store", settings) as node:
            for _ in range(changes // 100):
                await self.change(node, rng, 100)
                await trio.sleep(rng.choice([0] * 18 + [12, 130]))

    async def change(self, node, rng, count):
        """Send changes to both ports; then both answer what they are asked."""
        async with (
            RawClient.connect(node.address) as broker,
            RawClient.connect(node.name_servers[0]) as names,
        ):
            both = [
                (broker, RequestCode.UPDATE_BROKER_CONFIG),
                (names, RequestCode.UPDATE_NAMESRV_CONFIG),
            ]
            for _ in range(count):
                client, code = rng.choice(both)
                pairs = [random_change(rng) for _ in range(rng.choice([1, 1, 1, 2, 5]))]
                text = "\n".join("=".join(pair) for pair in pairs)
                answer = await client.call(
                    Command(code, {}, text.encode("utf-8", "surrogatepass"))
                )
                self.taken += answer.code == ResponseCode.SUCCESS
                self.refused += answer.code != ResponseCode.SUCCESS
            shown = await broker.call(Command(RequestCode.GET_BROKER_CONFIG))
            assert shown.code == ResponseCode.SUCCESS
            shown = await names.call(Command(RequestCode.GET_NAMESRV_CONFIG))
            assert shown.code == ResponseCode.SUCCESS


@pytest.fixture(autouse=True)
def relative_paths(tmp_path, monkeypatch):
    """A random path may be relative: it begins in the folder of the test."""
    monkeypatch.chdir(tmp_path)


async def run(folder, seed, changes):
    rng = random.Random(seed)
    life = Life(folder)
    folder.mkdir(exist_ok=True)
    while changes > 0:
        await life.live(rng, min(changes, CHANGES_OF_A_LIFE))
        changes -= CHANGES_OF_A_LIFE
    await life.live(rng, 0)
    return life


async def test_some_changes(tmp_path, autojump_clock):
    life = await run(tmp_path, 1, 200)
    assert life.taken > 10
    assert life.refused > 40


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [2, 3])
async def test_many_changes(tmp_path, autojump_clock, seed):
    life = await run(tmp_path, seed, CHANGES // 2)
    assert life.taken > CHANGES / 20
    assert life.refused > CHANGES / 10
