"""What a template reads is what the scanner reads, or nothing."""

import json

from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.reactor.header_scan import scan
from rmq._fastpath.reactor.template import Templates

NAMES = ("a", "b", "e", "i")
VARYING = ("e", "i", "b")


def header(opaque=1, code=310, **fields):
    return json.dumps(
        {"code": code, "extFields": fields, "flag": 0, "opaque": opaque},
        ensure_ascii=False,
    ).encode()


def scanned(data):
    raw = scan(data, 0)
    if raw is None:
        return None
    wanted = {name.encode() for name in NAMES}
    fields = {name: value for name, value in raw.fields.items() if name in wanted}
    return raw.opaque, fields


def test_values_may_differ_and_nothing_else():
    templates = Templates(NAMES, VARYING)
    assert templates.read(header(a="x", b="T", e="1", i="p")) == (
        False,
        1,
        {b"a": b"x", b"b": b"T", b"e": b"1", b"i": b"p"},
    )
    recognised, opaque, fields = templates.read(
        header(-7, a="x", b="Longer", e="", i='q"\\\x01\u4e2d')
    )
    assert (recognised, opaque) == (True, -7)
    assert fields[b"b"] == b"Longer"
    assert fields[b"e"] == b""
    assert fields[b"i"] == 'q\\"\\\\\\u0001\u4e2d'.encode()
    for other in (
        header(a="y", b="T", e="1", i="p"),
        header(a="x", b="T", e="1", i="p", z="new"),
        header(a="x", b="T", e="1"),
        header(code=10, a="x", b="T", e="1", i="p"),
        header(a="x", b="T", e="1", i="p") + b" ",
    ):
        templates.read(header(a="x", b="T", e="1", i="p"))
        assert not templates.read(other)[0]


def test_a_number_stays_a_number():
    templates = Templates(NAMES, VARYING)
    templates.read(header(a="x", b="T", e=1, i="p"))
    recognised, _, fields = templates.read(header(a="x", b="T", e=-523, i="p"))
    assert recognised
    assert fields[b"e"] == b"-523"
    for other in ('"1"', "1.5", "01", "x", "", "12345678901234567890"):
        data = header(a="x", b="T", e=1, i="p").replace(b": 1,", f": {other},".encode())
        read = templates.read(data)
        assert read is None or not read[0]
        assert (read is None) == (scanned(data) is None)
        templates.read(header(a="x", b="T", e=1, i="p"))


def test_what_the_scanner_refuses_is_not_recognised():
    good = header(77, a="x", b="T", e="1", i="p")
    for bad in (
        good.replace(b'"p"', b'"\xff"'),
        good.replace(b'"p"', b'"\n"'),
        good.replace(b'"p"', b'"\\u00"'),
        good.replace(b'"p"', b'"\\ud800"'),
        good.replace(b"77", b"077"),
        good.replace(b"77", b"7.5"),
        good.replace(b"77", b"99999999999"),
        good.replace(b"77", b'"77"'),
        good[:-1],
        good + b"x",
        b"",
    ):
        templates = Templates(NAMES, VARYING)
        assert not templates.read(good)[0]
        assert templates.read(bad) is None


def test_a_large_header_is_read_and_not_learned():
    templates = Templates(NAMES, VARYING)
    large = header(a="x" * 2_000, b="T")
    assert templates.read(large) is not None
    assert not templates.read(large)[0]


VALUES = st.text(st.characters(max_codepoint=0x2FFF, exclude_categories=["Cs"]))


@given(
    first=st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, VALUES)),
    second=st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, VALUES)),
    opaque=st.integers(-(2**31), 2**31 - 1),
    noise=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
)
def test_templates_read_as_the_scanner_does(first, second, opaque, noise):
    templates = Templates(NAMES, VARYING)
    templates.read(header(**first))
    data = bytearray(header(opaque, **second))
    for place, byte in noise:
        data[place % len(data)] = byte
    found = templates.read(bytes(data))
    assert (found and found[1:]) == scanned(bytes(data))
