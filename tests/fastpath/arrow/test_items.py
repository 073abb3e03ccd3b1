"""The encoder of client batches against the model, and against the decoder."""

import ctypes
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.arrow.items import ItemWriter, RowFault
from rmq.protocol.batch import decode_batch
from rmq.protocol.properties import decode_properties
from tests.model.items import COLUMNS, model_item

TASK = b"0123456789ABCDEF0123"
KNOWN = {b"DELAY": True, b"WAIT": False}
NAMES = [name.encode() for name in COLUMNS.values()]
BODY_LIMIT = 300


class Memory:
    """Buffers in the layout of Arrow; they live as long as this."""

    def __init__(self):
        self._kept = []

    def put(self, data):
        """The address of a copy of the data."""
        self._kept.append(ctypes.create_string_buffer(data, max(len(data), 1)))
        return ctypes.addressof(self._kept[-1])

    def bits(self, values):
        """Validity bits; no buffer if all are valid."""
        if None not in values:
            return 0
        number = sum(1 << i for i, value in enumerate(values) if value is not None)
        return self.put(number.to_bytes(len(values) // 8 + 1, "little"))

    def offsets(self, sizes):
        ends = [0]
        for size in sizes:
            ends.append(ends[-1] + size)
        return self.put(struct.pack(f"<{len(ends)}i", *ends))

    def text(self, values, first=0):
        offsets = self.offsets([len(value or b"") for value in values])
        data = self.put(b"".join(value or b"" for value in values))
        return first, self.bits(values), offsets, data

    def numbers(self, values, first=0):
        data = self.put(struct.pack(f"<{len(values)}i", *(v or 0 for v in values)))
        return first, self.bits(values), data

    def map(self, values, first=0):
        flat = [pair for pairs in values for pair in pairs or ()]
        offsets = self.offsets([len(pairs or ()) for pairs in values])
        names = self.text([name for name, _ in flat])
        return (
            first,
            self.bits(values),
            offsets,
            names,
            self.text([value for _, value in flat]),
        )


class Rows:
    """Rows from the one at `skip` on, as arguments of `measure`."""

    def __init__(self, rows, skip=0):
        self._rows = rows
        self._skip = min(skip, len(rows))
        self._memory = Memory()

    def measure(self, writer, first_row=0):
        def column(name):
            return [row.get(name) for row in self._rows], self._skip

        memory = self._memory
        return writer.measure(
            len(self._rows) - self._skip,
            body=memory.text(*column("body")),
            texts=[memory.text(*column(name)) for name in COLUMNS],
            flags=memory.numbers(*column("flag")),
            pairs=memory.map(*column("pairs")),
            first_row=first_row,
        )


def new_writer(task=TASK):
    return ItemWriter(NAMES, task=task, known=KNOWN, body_limit=BODY_LIMIT)


texts = st.none() | st.binary(max_size=6) | st.text("aé\1", max_size=6).map(str.encode)
pairs = st.lists(
    st.tuples(
        st.sampled_from([b"", b"TAGS", b"KEYS", b"WAIT", b"DELAY", b"a", b"\x80"]),
        texts | st.just(b"v" * 20_000),
    ),
    max_size=3,
)
row_dicts = st.fixed_dictionaries(
    {
        "body": st.none() | st.binary(max_size=BODY_LIMIT + 2),
        "pairs": st.none() | pairs,
        "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
        **dict.fromkeys(COLUMNS, texts),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(row_dicts, max_size=8),
    skip=st.integers(0, 3),
    first=st.sampled_from([0, 65_535, 2**40]),
    task=st.sampled_from([None, TASK]),
)
def test_items_are_those_of_the_model(rows, skip, first, task):
    writer, arrays = new_writer(task), Rows(rows, skip)
    text = None if task is None else task.decode()
    wanted = [
        model_item(row, first + i, text, KNOWN, BODY_LIMIT)
        for i, row in enumerate(rows[skip:])
    ]
    faults = arrays.measure(writer, first)
    assert [(i, fault.name) for i, fault in faults] == [
        (i, item) for i, item in enumerate(wanted) if isinstance(item, str)
    ]
    good = [i for i, item in enumerate(wanted) if isinstance(item, bytes)]
    if good:
        order = Memory()
        address = order.put(struct.pack(f"<{len(good)}Q", *good[::-1]))
        body, end = writer.write(address, 0, len(good), 1 << 20)
        assert end == len(good)
        assert body == b"".join(wanted[i] for i in good[::-1])


def test_a_body_ends_at_the_limit_but_has_one_row():
    writer = new_writer()
    arrays = Rows([{"body": b"x" * size} for size in (10, 20, 30)])
    assert arrays.measure(writer) == []
    one = 22 + 42
    assert writer.write(0, 0, 3, 2 * one + 30)[1] == 2
    assert writer.write(0, 0, 3, 2 * one + 29)[1] == 1
    body, end = writer.write(0, 2, 3, 1)
    assert (len(body), end) == (one + 30, 3)


def test_the_broker_reads_what_was_written():
    writer = new_writer()
    row = {
        "body": b"three apples",
        "flag": -7,
        "keys": b"k1 k2",
        "tags": "żółw".encode(),
        "pairs": [(b"colour", b"red"), (b"KEYS", b"other"), (b"WAIT", b"true")],
    }
    arrays = Rows([row])
    assert arrays.measure(writer, first_row=0x12345) == []
    (item,) = decode_batch(writer.write(0, 0, 1, 1)[0])
    assert (item.body, item.flag) == (b"three apples", -7)
    assert decode_properties(item.properties_text) == {
        "colour": "red",
        "KEYS": "k1 k2",
        "TAGS": "żółw",
        "UNIQ_KEY": TASK.decode() + "000000012345",
    }


def test_rows_that_are_not_there():
    writer = new_writer()
    arrays = Rows([{"body": b""}, {"body": b"a"}])
    assert arrays.measure(writer) == [(0, RowFault.NO_BODY)]
    for start, end in ((0, 1), (1, 3), (-1, 2), (2, 2)):
        with pytest.raises(ValueError, match="row"):
            writer.write(0, start, end, 100)
    assert writer.write(0, 1, 2, 100)[1] == 2


def test_a_task_has_twenty_digits():
    with pytest.raises(ValueError, match="20 digits, not 3"):
        ItemWriter([], task=b"ABC")
