"""Configuration: keys, types, limits, files as Java reads them, the environment."""

import enum
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cluster.config import ReplicationConfig
from rmq.config.broker import BrokerConfig
from rmq.config.keys import unused_keys
from rmq.config.option import (
    Configuration,
    as_text,
    build,
    check_settings,
    describe,
    environment_values,
    nearest_name,
    option,
    options,
    read_properties,
)
from rmq.core.errors import ConfigError
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.store.config import BrokerRole, FlushDiskType, StoreConfig

ALL = (BrokerConfig, StoreConfig, ReplicationConfig, NamesrvConfig, NamesrvListenConfig)
BROKER = (BrokerConfig, StoreConfig, ReplicationConfig)


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """One key of each kind."""

    is_on: bool = option(default=False, key="isOn", doc="a switch")
    size: int = option(5, key="size", low=-1, high=10, doc="a size")
    ratio: float = option(0.5, key="ratio", low=0, high=1, doc="a ratio")
    colour: Colour = option(Colour.RED, key="colour", doc="a colour")
    name: str = option("none", key="name", doc="a name")
    password: str = option("", key="password", doc="a secret", secret=True)
    derived: int = 7


# -- values


@pytest.mark.parametrize(
    ("key", "text", "field", "value"),
    [
        ("isOn", "true", "is_on", True),
        ("isOn", "TRUE", "is_on", True),
        ("isOn", "False", "is_on", False),
        ("size", "-1", "size", -1),
        ("size", "10", "size", 10),
        ("size", "+3", "size", 3),
        ("ratio", "0.25", "ratio", 0.25),
        ("ratio", "1", "ratio", 1.0),
        ("colour", "GREEN", "colour", Colour.GREEN),
        ("name", "", "name", ""),
        ("name", "a=b # c", "name", "a=b # c"),
    ],
)
def test_a_text_becomes_its_declared_type(key, text, field, value):
    built = getattr(build(Sample, {key: text}), field)
    assert built == value
    assert type(built) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("isOn", "yes", "isOn=yes: it must be true or false"),
        ("isOn", "", "isOn=: it must be true or false"),
        ("isOn", "1", "isOn=1: it must be true or false"),
        ("size", "ten", "size=ten: it must be a whole number"),
        ("size", "", "size=: it must be a whole number"),
        ("size", "1.0", "size=1.0: it must be a whole number"),
        ("size", "1_0", "size=1_0: it must be a whole number"),
        ("size", "0x1", "size=0x1: it must be a whole number"),
        ("size", "9" * 5_000, "it must be a whole number"),
        ("size", "-2", "size=-2: the smallest value is -1"),
        ("size", "11", "size=11: the largest value is 10"),
        ("ratio", "much", "ratio=much: "),
        ("ratio", "nan", "ratio=nan: the smallest value is 0"),
        ("ratio", "-0.1", "ratio=-0.1: the smallest value is 0"),
        ("ratio", "inf", "ratio=inf: the largest value is 1"),
        ("colour", "green", "colour=green: it must be one of RED, GREEN"),
        ("colour", "", "colour=: it must be one of RED, GREEN"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_wanted(key, text, said):
    with pytest.raises(ConfigError) as caught:
        build(Sample, {key: text})
    assert str(caught.value).endswith(said) or said in str(caught.value)


def test_keys_of_others_are_passed_over_and_defaults_stay():
    assert build(Sample, {"listenPort": "x", "derived": "9"}) == Sample()


@given(st.text(), st.sampled_from([mark.key for _, mark in options(Sample)]))
def test_whatever_the_text_it_is_a_value_or_a_config_error(text, key):
    try:
        built = build(Sample, {key: text})
    except ConfigError:
        return
    assert -1 <= built.size <= 10
    assert 0 <= built.ratio <= 1


# -- every key there is


@pytest.mark.parametrize("config", ALL)
def test_every_default_lies_in_its_limits_and_reads_back(config):
    default = config()
    texts = {key: value for key, value, _ in describe(default)}
    assert build(config, texts) == default
    assert all(is_default for _, _, is_default in describe(default))


@pytest.mark.parametrize(
    ("config", "key", "low", "high"),
    [
        (config, mark.key, mark.low, mark.high)
        for config in ALL
        for _, mark in options(config)
        if mark.low is not None
    ],
)
def test_every_limit_holds(config, key, low, high):
    if low is not None:
        with pytest.raises(ConfigError, match=f"^{key}={low - 1}: the smallest value"):
            build(config, {key: str(low - 1)})
    if high is not None:
        with pytest.raises(ConfigError, match=f"^{key}={high + 1}: the largest"):
            build(config, {key: str(high + 1)})


@pytest.mark.parametrize("config", ALL)
def test_keys_and_variables_are_unique_and_documented(config):
    marks = [mark for _, mark in options(config)]
    assert len({mark.key for mark in marks}) == len(marks)
    assert all(mark.doc and not mark.doc.endswith(".") for mark in marks)
    assert not {mark.key for mark in marks} & unused_keys().keys()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"storePathCommitLog": "/a,/b", "readOnlyCommitLogStorePaths": "/b,/a"},
            "one directory of storePathCommitLog must accept new files",
        ),
        ({"storeType": "defaultRocksDB"}, "only default is supported"),
        ({"configManagerVersion": "v2"}, "only v1 is supported"),
        ({"enableDLegerCommitLog": "true"}, "cannot read DLedger logs"),
        ({"messageDelayLevel": "1s 5x"}, "use numbers with s, m, h or d"),
        ({"messageDelayLevel": "1s s"}, "use numbers with s, m, h or d"),
        ({"deleteWhen": "4 o'clock"}, "use hours from 00 to 23, separated by ;"),
        ({"flushDiskType": "SYNC"}, "it must be one of ASYNC_FLUSH, SYNC_FLUSH"),
    ],
)
def test_what_the_store_cannot_do_is_refused(values, said):
    with pytest.raises(ConfigError, match=said):
        build(StoreConfig, values)


def test_what_the_store_takes():
    values = {
        "brokerRole": "SYNC_MASTER",
        "flushDiskType": "SYNC_FLUSH",
        "mappedFileSizeConsumeQueue": "201",
        "messageDelayLevel": " 2s  1d ",
        "deleteWhen": "04;16;",
        "storePathRootDir": "/data",
    }
    config = build(StoreConfig, values)
    assert config.broker_role is BrokerRole.SYNC_MASTER
    assert config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert config.is_sync_flush
    assert config.queue_file_size == 220
    assert config.delay_table() == (2_000, 86_400_000)
    assert config.delete_hour_set() == {4, 16}
    assert str(config.root_path) == "/data"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 128])
@pytest.mark.parametrize("key", ["brokerName", "brokerClusterName"])
def test_names_that_would_break_a_path_are_refused(key, name):
    with pytest.raises(ConfigError, match=f"{key}="):
        build(BrokerConfig, {key: name})


@pytest.mark.parametrize("region", ['a"b', "a\\b", "a\nb", "a\x01b", "x" * 128])
def test_a_region_that_would_break_an_answer_is_refused(region):
    with pytest.raises(ConfigError, match="regionId="):
        build(BrokerConfig, {"regionId": region})
    assert build(BrokerConfig, {"regionId": "Süd 1"}).region_id == "Süd 1"


def test_name_servers_are_separated_by_semicolons():
    config = build(BrokerConfig, {"namesrvAddr": " a:1 ;; b:2;"})
    assert config.name_servers == ("a:1", "b:2")
    assert BrokerConfig().name_servers == ()


class Pair(Configuration):
    """Two keys that go together."""

    low: int = option(1, key="low", doc="the lower one")
    high: int = option(2, key="high", doc="the higher one")

    def __post_init__(self):
        if self.low > self.high:
            raise ConfigError("low is above high")


def test_a_configuration_has_its_values_and_the_defaults_and_stays_as_it_is():
    pair = Pair(high=9)
    assert (pair.low, pair.high) == (1, 9)
    assert pair == build(Pair, {"high": "9"}) == replace(Pair(), high=9)
    assert pair != Pair()
    with pytest.raises(FrozenInstanceError, match="high"):
        pair.high = 3
    with pytest.raises(FrozenInstanceError, match="hihg"):
        pair.hihg = 3
    assert pair.high == 9


def test_a_configuration_refuses_what_it_does_not_know_and_what_its_check_refuses():
    with pytest.raises(TypeError, match="Pair has no hihg"):
        Pair(hihg=3)
    with pytest.raises(ConfigError, match="low is above high"):
        Pair(low=3)
    with pytest.raises(ConfigError, match="low is above high"):
        replace(Pair(), high=0)


# -- files


@pytest.fixture
def read(tmp_path):
    def call(data):
        path = tmp_path / "broker.conf"
        path.write_bytes(data)
        return read_properties(path)

    return call


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b"", {}),
        (b"# all\n! of it\n  # is comment\n\n", {}),
        (b"a=1\nb:2\nc 3\nd\t=\t4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        (b"a = b = c\n", {"a": "b = c"}),
        (b"\xef\xbb\xbfa=1\nb=2\n", {"a": "1", "b": "2"}),
        (b"a=1 # not a comment\n", {"a": "1 # not a comment"}),
        (b"a=1\na=2\n", {"a": "2"}),
        (b"a\n", {"a": ""}),
        (b"a=  1  \r\nb=2\r", {"a": "1", "b": "2"}),
        (b"a=one\\\n   two\n", {"a": "onetwo"}),
        (b"a=one \\\n# two\n", {"a": "one # two"}),
        (b"# one \\\na=2\n", {"a": "2"}),
        (b"path=C\\:\\\\store\n", {"path": "C:\\store"}),
        (b"path=C:\\store\n", {"path": "C:store"}),
        (b"a\\ b=1\na\\=b=2\n", {"a b": "1", "a=b": "2"}),
        (b"a=\\u00e4\\t|\n", {"a": "ä\t|"}),
        (b"a=\\ud83d\\ude42\n", {"a": "\U0001f642"}),
        ("a=ä中\n".encode(), {"a": "ä中"}),
        (b"a=1\n  b=2", {"a": "1", "b": "2"}),
    ],
)
def test_files_are_java_properties(read, data, values):
    assert read(data) == values


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a=\\u12\n", "broker.conf: "),
        (b"a=\xe4\n", "broker.conf: line 1 .a. is not UTF-8"),
        (b"a=\\ud800\n", "broker.conf: .*surrogates not allowed"),
        (b"\\udc00=1\n", "broker.conf: .*surrogates not allowed"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(read, data, said):
    with pytest.raises(ConfigError, match=said):
        read(data)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.conf: No such file"):
        read_properties(tmp_path / "none.conf")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_properties(tmp_path)


@given(st.binary(max_size=200))
def test_whatever_a_file_holds_it_is_values_or_a_config_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.conf"
    path.write_bytes(data)
    try:
        values = read_properties(path)
    except ConfigError:
        return
    assert all(value == value.strip() for value in values.values())


# -- the environment


def test_variables_are_named_after_fields():
    environment = {
        "RMQ_LISTEN_PORT": "1",
        "RMQ_FLUSH_DISK_TYPE": "SYNC_FLUSH",
        "RMQ_NOTHING": "x",
        "rmq_broker_name": "x",
        "LISTEN_PORT": "2",
    }
    assert environment_values(environment, BROKER) == {
        "listenPort": "1",
        "flushDiskType": "SYNC_FLUSH",
    }


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({"NAMESRV_ADDR": "java:1"}, "java:1"),
        ({"NAMESRV_ADDR": "java:1", "RMQ_NAMESRV_ADDR": "rmq:2"}, "rmq:2"),
        ({"NAMESRV_ADDR": "java:1", "RMQ_NAMESRV_ADDR": ""}, ""),
    ],
)
def test_java_s_variable_for_name_servers_is_known(environment, address):
    assert environment_values(environment, BROKER) == {"namesrvAddr": address}


# -- findings


def texts(values, classes=BROKER):
    return [(f.text, f.is_problem) for f in check_settings(values, classes)]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("brokerIp1", "brokerIP1"),
        ("listenport", "listenPort"),
        ("flushDiskTyp", "flushDiskType"),
        ("namesrvAdr", "namesrvAddr"),
        ("autoCreateTopicsEnable", "autoCreateTopicEnable"),
    ],
)
def test_an_unknown_key_is_told_with_the_nearest_one(key, meant):
    said = f"unknown key {key}; did you mean {meant}?"
    assert texts({key: "1"}) == [(said, True)]


def test_a_key_like_no_other_is_told_without_a_guess():
    assert texts({"zzz": "1"}) == [("unknown key zzz", True)]


def test_keys_of_a_disabled_plugin_rest():
    values = {"plugins.disabled": "acme, bell", "plugin.acme.tenants": "a"}
    assert texts(values)[-1] == (
        "plugin.acme.tenants has no effect: plugins.disabled contains acme",
        False,
    )
    assert texts({**values, "plugin.other.x": "1"})[-1][1] is True
    assert nearest_name("zzz", ["listenPort"]) is None


@pytest.mark.parametrize(
    ("key", "is_problem"),
    [
        ("useEpollNativeSelector", False),
        ("sendMessageThreadPoolNums", False),
        ("duplicationEnable", True),
    ],
)
def test_a_key_of_java_without_effect_is_told_with_the_reason(key, is_problem):
    ((said, was_problem),) = texts({key: "1"})
    assert said.startswith(f"{key} has no effect in rmq: ")
    assert was_problem == is_problem


def test_a_comment_behind_a_value_is_a_problem_also_of_unknown_keys():
    found = texts({"brokerName": "a # b", "listenPort": "1#2", "zzz": "1 #"})
    assert [problem for _, problem in found] == [True, True, True]
    assert "brokerName: the value contains '#' after a blank" in found[0][0]
    assert "this text is part of the value" in found[0][0]
    assert "zzz: the value" in found[1][0]
    assert found[2][0] == "unknown key zzz"


def test_keys_belong_to_their_role():
    assert texts({"kvConfigPath": "x"}, (NamesrvConfig,)) == []
    assert texts({"kvConfigPath": "x"}, BROKER)[0][1]


# -- showing


def test_secrets_are_never_shown():
    shown = list(describe(Sample(password="secret", size=6)))
    assert ("size", "6", False) in shown
    assert ("name", "none", True) in shown
    assert "secret" not in repr(shown)
    assert "password" not in repr(shown)
    assert "derived" not in repr(shown)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (Colour.GREEN, "GREEN"),
        (None, ""),
        (1 << 40, "1099511627776"),
        (0.5, "0.5"),
    ],
)
def test_values_are_written_as_java_writes_them(value, text):
    assert as_text(value) == text
