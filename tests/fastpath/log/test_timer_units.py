"""Units of plain records and chains of slots, against the way one by one."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.bytes.hashing import java_hash
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.timer_units import add_units, walk_units
from rmq.protocol.records import decode_stored
from rmq.store.allocate import FileAllocator
from rmq.store.timer.log import NO_UNIT, UNIT_SIZE, TimerLog, TimerUnit
from rmq.store.timer.wheel import TimerWheel

NOW, READ_SLOT, END = 100, 98, 200
PLAIN = (
    "UNIQ_KEY\x01k\x02TIMER_OUT_MS\x01{out}\x02"
    "REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02"
)


def stored(*texts):
    encoder, at = RecordEncoder(bytes(8)), 1_000
    for number, text in enumerate(texts):
        data = text if isinstance(text, bytes) else text.encode()
        parts = (0, 0, 1, bytes(8), 2, 0, 0, b"body", data)
        at += encoder.stage(b"rmq_sys_wheel_timer", 0, 7 + number, at, *parts)
    return encoder.staged_bytes()


def plain(slot, topic="T"):
    return PLAIN.format(out=slot * 1_000, topic=topic)


class Side:
    """A timer log and a wheel with some slots."""

    def __init__(self, folder, slots, size=1 << 20):
        self.log = TimerLog(folder, size, FileAllocator(1 << 20))
        self.wheel = TimerWheel()
        for slot in slots:
            self.add(slot, (1, 100, 0))

    def add(self, slot, record):
        unit = TimerUnit(
            self.wheel.last_of(slot), 1, NOW * 1_000, (slot - NOW) * 1_000, *record
        )
        self.wheel.add(slot, self.log.append(unit), recalls=False)

    def add_plain(self, records, position=0):
        return add_units(
            self.log.open_file(), self.wheel.slots, records, position,
            precision_ms=1_000, first_slot=READ_SLOT, now=NOW, end_slot=END,
        )  # fmt: skip

    def state(self):
        return list(self.log.read_units()), self.wheel.slots

    def close(self):
        self.log.close()


@pytest.fixture
def side(tmp_path):
    made = Side(tmp_path / "a", [98, 100, 150])
    yield made
    made.close()


@given(
    messages=st.lists(
        st.tuples(st.sampled_from([97, 98, 100, 150, 199, 200]), st.sampled_from("TÜ")),
        max_size=40,
    )
)
def test_units_are_those_of_single_additions(tmp_path_factory, messages):
    folder = tmp_path_factory.mktemp("units")
    compiled = Side(folder / "a", [98, 100, 150, 200])
    model = Side(folder / "b", [98, 100, 150, 200])
    records = stored(*(plain(slot, topic) for slot, topic in messages))
    expected = 0
    for record in decode_stored(records):
        slot, topic = messages[expected]
        if slot not in (98, 100, 150):
            break
        place = record.physical_offset, record.size, java_hash(topic)
        model.add(slot, place)
        expected += 1
    added = compiled.add_plain(records)
    assert compiled.state() == model.state()
    if not expected:
        assert added is None
    else:
        size = len(stored(*(plain(slot, topic) for slot, topic in messages[:expected])))
        assert added[:2] == (size, 7 + expected)
        assert [
            topic for topic, code, count in added[2] for _ in range(count)
            if code == java_hash(topic)
        ] == [topic for _, topic in messages[:expected]]  # fmt: skip
    compiled.close()
    model.close()


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "TIMER_OUT_MS\x01150000\x02",
        "REAL_TOPIC\x01T\x02",
        plain(150)[:-1],
        plain(150) + "TIMER_DEL_UNIQKEY\x01k\x02",
        plain(150) + "UNIQ_KEY\x01again\x02",
        plain(150) + "no pair\x02",
        plain(150) + "\x01no name\x02",
        plain(150) + "no value\x01\x02",
        plain(150) + "".join(f"p{number}\x01v\x02" for number in range(70)),
        plain(150).encode() + b"p\x01\xff\x02",
        plain(150).replace("150000", "15000x"),
        plain(150).replace("150000", "-150000"),
        plain(150).replace("150000", "1" * 19),
        plain(150).replace("150000", ""),
    ],
)
def test_they_end_before_what_is_not_plain(side, odd):
    first = stored(plain(150))
    position, following, topics = side.add_plain(stored(plain(150), odd, plain(150)))
    assert (position, following) == (len(first), 8)
    assert topics == [("T", java_hash("T"), 1)]
    assert side.add_plain(stored(odd)) is None
    assert len(list(side.log.read_units())) == 4


@pytest.mark.parametrize("records", [b"", b"\0" * 100, b"\x7f\xff\xff\xff" * 30])
def test_no_record_is_no_unit(side, records):
    assert side.add_plain(records) is None
    whole = stored(plain(150))
    assert side.add_plain(whole[:-1]) is None
    assert side.add_plain(whole, len(whole)) is None
    assert side.add_plain(whole, -1) is None


def test_they_end_where_the_file_ends(tmp_path):
    side = Side(tmp_path / "a", [150], size=5 * UNIT_SIZE + 16)
    records = stored(*[plain(150)] * 9)
    position, following, _ = side.add_plain(records)
    assert following == 7 + 4
    assert side.add_plain(records, position) is None
    side.add(150, (1, 100, 0))
    assert side.add_plain(records, position)[1] == 7 + 8
    assert walk_units(side.log.files, side.wheel.last_of(150), -1, 99)[1] == -1
    side.close()


def test_without_a_file_there_is_no_room(tmp_path):
    side = Side(tmp_path / "a", [])
    assert side.log.open_file() is None
    assert side.log.read_chain(0, -1, 9) == (array("q"), NO_UNIT)


def walked(log, position, after, most):
    """What `walk_units` returns, unit by unit."""
    found = array("q")
    while position > after and len(found) < most:
        unit = log.unit_at(position)
        if unit is None:
            return found, NO_UNIT
        found.append(position)
        position = unit.previous if unit.previous < position else NO_UNIT
    return found, position if position > after else NO_UNIT


@given(
    slots=st.lists(st.integers(0, 3), max_size=40),
    last=st.integers(-60, 45 * UNIT_SIZE),
    after=st.integers(-1, 40 * UNIT_SIZE),
    most=st.integers(0, 9),
)
def test_a_chain_is_walked_unit_by_unit(tmp_path_factory, slots, last, after, most):
    side = Side(tmp_path_factory.mktemp("chain"), [], size=10 * UNIT_SIZE + 20)
    for slot in slots:
        side.add(slot, (1, 100, 0))
    for start in (last, last // UNIT_SIZE * UNIT_SIZE, *map(side.wheel.last_of, slots)):
        expected = walked(side.log, start, after, most)
        assert side.log.read_chain(start, after, most) == expected
    side.close()
