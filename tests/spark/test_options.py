import pytest

from rmq.core.errors import ConfigError
from rmq_spark.options import OPTIONS, Options, options_table


def test_defaults_are_those_of_the_table():
    options = Options({"path": "/s"})
    assert options["store"] == "/s"
    for option in OPTIONS:
        if option.name != "store":
            assert options[option.name] == option.default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("splitBytes", "64m", 64 << 20),
        ("SPLITBYTES", "1 GB", 1 << 30),
        ("maxPartitionBytes", "4096", 4096),
        ("subscribe", "a, b,", ("a", "b")),
        ("topic", "a", ("a",)),
        ("failOnDataLoss", "False", False),
        ("confirmOffset", "0", 0),
        ("assign", '{"T": {"b": [0, 1]}}', frozenset({("T", "b", 0), ("T", "b", 1)})),
        (
            "startingOffsetsByTimestamp",
            '{"T": {"b": {"3": 99}}}',
            {("T", "b", 3): 99},
        ),
    ],
)
def test_values_are_read(name, text, value):
    options = Options({"store": "/s", name: text})
    changed = {o.name: options[o.name] for o in OPTIONS if options[o.name] != o.default}
    changed.pop("store")
    assert list(changed.values()) == [value]


def test_positions():
    def of(text):
        return Options({"store": "/s", "startingOffsets": text})["startingOffsets"]

    assert of("earliest").word == "earliest"
    assert of('{"broker-a": 1024}').physical_offset == 1024
    assert of('{"T": {"b": {"0": 23, "1": -2}}}').queues == {
        ("T", "b", 0): 23,
        ("T", "b", 1): -2,
    }


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "option store is missing"),
        ({"store": "s", "splitByte": "1"}, "did you mean splitBytes"),
        ({"store": "s", "qqqqqqq": "1"}, "there is no option qqqqqqq$"),
        ({"store": "s", "path": "s"}, "store is given twice"),
        ({"store": "s", "splitBytes": "much"}, "must be a size such as 128m"),
        ({"store": "s", "splitBytes": "0"}, "must be a size"),
        ({"store": "s", "minPartitions": "0"}, "above 0"),
        ({"store": "s", "confirmOffset": "-1"}, "not below 0"),
        ({"store": "s", "failOnDataLoss": "yes"}, "true or false"),
        ({"store": "s", "schema": "avro"}, "rmq or kafka"),
        ({"store": "s", "subscribe": " , "}, "names, separated by commas"),
        ({"store": "s", "subscribePattern": "("}, "regular expression"),
        ({"store": "s", "assign": "[1]"}, "JSON object"),
        ({"store": "s", "assign": '{"T": 1}'}, r"\[0, 1\]"),
        ({"store": "s", "startingOffsets": "soon"}, "earliest, latest"),
        ({"store": "s", "startingOffsets": '{"a": {"b": 3}}'}, '"broker-a": {"0": 23'),
        ({"store": "s", "startingOffsets": '{"a": -3}'}, "-2 is the earliest"),
        ({"store": "s", "startingOffsets": "{"}, "JSON"),
        ({"store": "s", "subscribe": "a", "assign": '{"T":{"b":[0]}}'}, "not both"),
        ({"store": "s", "nameServer": "h:9876"}, "nameServer is for live topics"),
        ({"store": "s", "pullBatchSize": "9"}, "pullBatchSize is for live topics"),
        ({"mode": "live"}, "option nameServer is missing"),
        ({"nameServer": "h:9876"}, "no topics are selected"),
        ({"nameServer": "h", "topic": "T"}, "host:port"),
        ({"nameServer": "h:1", "topic": "T", "splitBytes": "1m"}, "for segments"),
        ({"nameServer": "h:1", "topic": "T", "pullsInFlight": "9999"}, "at most 1024"),
        (
            {"nameServer": "h:1", "topic": "T", "startingOffsets": '{"broker-a": 5}'},
            "a physical offset is for segments",
        ),
    ],
)
def test_a_wrong_option_is_told_in_a_sentence(given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Options(given)


def test_the_table_has_a_row_for_each_option():
    table = options_table(OPTIONS)
    for option in OPTIONS:
        assert f"| `{option.name}`" in table
        assert option.meaning.replace("…", "...") in table
