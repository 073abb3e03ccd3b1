"""Every key of Java's is known: honoured, or without effect for a stated reason."""

import json
import re
from pathlib import Path

import pytest

from rmq.cluster.config import ReplicationConfig
from rmq.config.broker import BrokerConfig
from rmq.config.keys import unused_keys
from rmq.config.option import check_settings, options
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.observe.config import ExportConfig
from rmq.store.config import StoreConfig
from rmq_plugins.consume.lite.config import LiteConfig

CLASSES = (
    BrokerConfig,
    StoreConfig,
    ReplicationConfig,
    NamesrvConfig,
    NamesrvListenConfig,
    ExportConfig,
    LiteConfig,
)
ROOT = Path(__file__).resolve().parents[2]
HONOURED = {mark.key for kind in CLASSES for _, mark in options(kind)}
NETTY_CLIENT_CONFIG = """
    clientWorkerThreads clientCallbackExecutorThreads clientOnewaySemaphoreValue
    clientAsyncSemaphoreValue connectTimeoutMillis channelNotActiveInterval
    isScanAvailableNameSrv clientChannelMaxIdleTimeSeconds clientSocketSndBufSize
    clientSocketRcvBufSize clientPooledByteBufAllocatorEnable socksProxyConfig
    clientCloseSocketIfTimeout useTLS writeBufferHighWaterMark writeBufferLowWaterMark
    disableCallbackExecutor disableNettyWorkerGroup maxReconnectIntervalTimeSeconds
    enableReconnectForGoAway
"""
"""Read in the source of 5.x: no recording has them."""


@pytest.mark.parametrize(
    "kind", ["BrokerConfig", "MessageStoreConfig", "NamesrvConfig", "NettyServerConfig"]
)
def test_each_key_of_java_is_known(golden, kind):
    facts = json.loads((golden / "facts-5.5.0.json").read_text())["defaults"][kind]
    assert len(facts) > 15
    assert not facts.keys() - HONOURED - unused_keys().keys()


def test_each_key_of_javas_outgoing_connections_is_known():
    assert not set(NETTY_CLIENT_CONFIG.split()) - unused_keys().keys()


def test_no_key_is_both_honoured_and_without_effect():
    assert not HONOURED & unused_keys().keys()


def test_each_reason_is_a_sentence_of_its_own():
    reasons = {one.reason for one in unused_keys().values()}
    assert len(reasons) > 20
    assert not [r for r in reasons if len(r) < 20 or r.endswith(".")]


def test_what_is_missed_has_a_way_out_that_the_finding_names():
    missed = [one for one in unused_keys().values() if one.is_missed]
    assert len(missed) > 60
    for one in missed:
        assert len(one.way_out) > 10, one.key
        (finding,) = check_settings({one.key: f"{one.default}x"}, CLASSES)
        assert finding.is_problem
        assert one.reason in finding.text
        assert one.way_out in finding.text
        for page in re.findall(r"docs/[\w/-]+\.md", one.way_out):
            assert (ROOT / page).exists(), page
    assert not [
        one.key for one in unused_keys().values() if one.way_out and not one.is_missed
    ]


@pytest.mark.parametrize(
    ("key", "value", "is_problem"),
    [
        ("sendMessageThreadPoolNums", "64", False),
        ("duplicationEnable", "false", False),
        ("duplicationEnable", "true", True),
    ],
)
def test_asking_for_what_is_missing_is_a_problem(key, value, is_problem):
    (finding,) = check_settings({key: value}, CLASSES)
    assert finding.is_problem == is_problem
    assert unused_keys()[key].reason in finding.text


@pytest.mark.parametrize("value", ["1 # one", "1\t#one", "a #b"])
def test_a_swallowed_comment_is_found(value):
    assert check_settings({"brokerName": value}, CLASSES)[0].is_problem


@pytest.mark.parametrize("value", ["a#b", "#", "TagA#TagB"])
def test_a_number_sign_in_a_value_is_no_comment(value):
    assert check_settings({"brokerName": value}, CLASSES) == []


def test_a_typo_of_a_key_without_effect_is_named_too():
    (finding,) = check_settings({"sendMessageThreadPoolNum": "1"}, CLASSES)
    assert "did you mean sendMessageThreadPoolNums?" in finding.text
