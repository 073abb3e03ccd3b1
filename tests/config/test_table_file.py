"""The file of a table: every changed bit is found, older versions are kept."""

import json

import pytest

from rmq.config.table_file import TableFile, find_tear, seal_of, seal_text

HOUR_MS = 3_600_000
TEXT = b'{\n\t"offsetTable":{\n\t\t"T@G":{0:5\n\t\t}\n\t}\n}'


def versions(path):
    """The sealed numbers of all files of a table, the newest first."""
    files = [path.parent / (path.name + end) for end in ("", ".bak", ".1", ".2", ".3")]
    return [seal_of(file.read_bytes())[0] for file in files if file.exists()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "table.json"


def test_a_sealed_text_is_json_and_keeps_its_number_and_time():
    text = seal_text(b'{\n\t"a":1\n}', 7, 1_764_000_000_000)
    assert json.loads(text) == {"rmqSeal": json.loads(text)["rmqSeal"], "a": 1}
    assert seal_of(text) == (7, 1_764_000_000_000)
    assert find_tear(text) is None


def test_an_empty_object_can_be_sealed():
    text = seal_text(b"{}", 1, 1)
    assert list(json.loads(text)) == ["rmqSeal"]
    assert find_tear(text) is None


def test_every_flipped_bit_is_found_or_breaks_the_name_of_the_seal():
    text = seal_text(TEXT, 12, 1_764_000_000_000)
    name = range(text.index(b'"rmqSeal'), text.index(b'":"') + 3)
    for at in set(range(3, len(text))) - set(name):
        for bit in range(8):
            flipped = bytearray(text)
            flipped[at] ^= 1 << bit
            found = find_tear(bytes(flipped))
            assert found is not None or seal_of(bytes(flipped)) == (0, 0), (at, bit)


@pytest.mark.parametrize("size", [0, 1, 40, len(TEXT)])
def test_a_cut_text_is_torn(size):
    text = seal_text(TEXT, 1, 1)[:size]
    assert find_tear(text) is not None or seal_of(text) == (0, 0)


def test_a_text_of_java_has_no_seal_and_is_taken():
    assert find_tear(TEXT) is None


def test_a_generation_is_made_once_an_hour(path):
    file = TableFile(path)
    for number in range(50):
        file.write([TEXT], now_ms=HOUR_MS + number * HOUR_MS // 10)
    assert versions(path) == [50, 49, 41, 31, 21]


def test_a_restart_makes_no_generation(path):
    for number in range(20):
        TableFile(path).write([TEXT], now_ms=HOUR_MS * 9 + number)
    assert versions(path) == [20, 19, 1]


def test_a_clock_that_is_set_back_makes_generations(path):
    file = TableFile(path)
    for hour in (9, 8, 7, 6, 5, 4):
        file.write([TEXT], now_ms=HOUR_MS * hour)
    assert versions(path) == [6, 5, 4, 3, 2]
