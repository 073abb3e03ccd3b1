"""Header blocks, against the examples of RFC 7541 and a slow model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.http2.header_names import KNOWN_NAMES, STATIC_TEXTS
from rmq._fastpath.http2.hpack import HeaderDecoder
from tests.model import hpack as model

REQUEST = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")]
WWW = (b":authority", b"www.example.com")
DATE_21 = (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT")
DATE_22 = (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT")
PRIVATE = (b"cache-control", b"private")
LOCATION = (b"location", b"https://www.example.com")
COOKIE = b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"

REQUESTS = [
    [*REQUEST, WWW],
    [*REQUEST, WWW, (b"cache-control", b"no-cache")],
    [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        WWW,
        (b"custom-key", b"custom-value"),
    ],
]
RESPONSES = [
    [(b":status", b"302"), PRIVATE, DATE_21, LOCATION],
    [(b":status", b"307"), PRIVATE, DATE_21, LOCATION],
    [
        (b":status", b"200"),
        PRIVATE,
        DATE_22,
        LOCATION,
        (b"content-encoding", b"gzip"),
        (b"set-cookie", COOKIE),
    ],
]
NEW_LIMIT_256 = "3fe101"

EXAMPLES = {
    "C.2.1": [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            [(b"custom-key", b"custom-header")],
            55,
        )
    ],
    "C.2.2": [("040c 2f73 616d 706c 652f 7061 7468", [(b":path", b"/sample/path")], 0)],
    "C.2.3": [
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", [(b"password", b"secret")], 0)
    ],
    "C.2.4": [("82", [(b":method", b"GET")], 0)],
    "C.3": [
        ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", REQUESTS[0], 57),
        ("8286 84be 5808 6e6f 2d63 6163 6865", REQUESTS[1], 110),
        (
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            REQUESTS[2],
            164,
        ),
    ],
    "C.4": [
        ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", REQUESTS[0], 57),
        ("8286 84be 5886 a8eb 1064 9cbf", REQUESTS[1], 110),
        (
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            REQUESTS[2],
            164,
        ),
    ],
    "C.5": [
        (
            NEW_LIMIT_256 + "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032"
            "3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073"
            "3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            RESPONSES[0],
            222,
        ),
        ("4803 3330 37c1 c0bf", RESPONSES[1], 222),
        (
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220"
            "474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157"
            "454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076"
            "6572 7369 6f6e 3d31",
            RESPONSES[2],
            215,
        ),
    ],
    "C.6": [
        (
            NEW_LIMIT_256 + "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8"
            "2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae"
            "43d3",
            RESPONSES[0],
            222,
        ),
        ("4883 640e ffc1 c0bf", RESPONSES[1], 222),
        (
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b"
            "d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27"
            "0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
            RESPONSES[2],
            215,
        ),
    ],
}


def pairs(headers):
    return [(name, value) for name, value, _ in headers]


@pytest.mark.parametrize("section", EXAMPLES)
def test_examples_of_the_rfc(section):
    decoder, table = HeaderDecoder(), model.Table()
    for block, headers, used in EXAMPLES[section]:
        block = bytes.fromhex(block)
        assert pairs(decoder.decode(block)) == headers
        assert model.decode(table, block) == headers
        assert decoder.used_size == table.used == used


def test_an_index_of_each_static_entry():
    decoder = HeaderDecoder()
    block = b"".join(model.encode_number(i, 7, 0x80) for i in range(1, 62))
    assert pairs(decoder.decode(block)) == list(STATIC_TEXTS)


def test_known_names_have_their_numbers():
    decoder = HeaderDecoder()
    for name, number in KNOWN_NAMES.items():
        block = b"\x40" + model.encode_text(name, is_coded=True) + b"\x011"
        assert decoder.decode(block) == [(name, b"1", number)]
        assert decoder.decode(b"\xbe") == [(name, b"1", number)]


BAD = KNOWN_NAMES[b"connection"]


@pytest.mark.parametrize(
    "name", [b"", b"X-mq", b"a b", b"a\0", b"a\x7f", b"a:b", b"connection", b"a\xff"]
)
def test_names_that_no_request_may_have(name):
    block = b"\x40" + model.encode_text(name) + b"\x011"
    decoder = HeaderDecoder()
    assert decoder.decode(block) == [(name, b"1", BAD)]
    assert decoder.decode(b"\xbe") == [(name, b"1", BAD)]


@pytest.mark.parametrize("value", [b"a\rb", b"a\nb", b"a\0b"])
def test_values_with_an_end_of_line_or_a_zero(value):
    block = b"\x40" + model.encode_text(b"x-mq-client-id") + model.encode_text(value)
    assert HeaderDecoder().decode(block) == [(b"x-mq-client-id", value, BAD)]


@pytest.mark.parametrize(
    "block",
    [
        "80",  # index 0
        "be",  # an index after the last entry
        "ff",  # half a number
        "ff80808080808001",  # a number of 43 bits
        "40",  # no name
        "4001",  # half a name
        "400161",  # no value
        "40016105",  # half a value
        "8220",  # a new limit after a header
        "3fe21f",  # a new limit of 4,097
        "4081ff0131",  # a coded name with padding of eight bits
    ],
)
def test_broken_blocks(block):
    block = bytes.fromhex(block)
    with pytest.raises(model.Broken):
        model.decode(model.Table(), block)
    with pytest.raises(ValueError, match="error 9"):
        HeaderDecoder().decode(block)


def test_a_block_over_the_limit_is_refused():
    assert len(HeaderDecoder().decode(b"\x82" * 32_768)) == 32_768
    with pytest.raises(ValueError, match="error 9"):
        HeaderDecoder().decode(b"\x82" * 32_769)


def test_a_text_of_the_shortest_codes_fills_a_block():
    text = b"0" * 52_416
    block = b"\x00\x01a" + model.encode_text(text, is_coded=True)
    assert len(block) <= 32_768
    assert pairs(HeaderDecoder().decode(block)) == [(b"a", text)]


names = st.sampled_from(
    [*KNOWN_NAMES, b"a", b"b" * 60, b"c" * 300, b"grpc-trace-bin", b"x" * 1500]
)
values = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"trailers", b"z" * 200, b"y" * 2000, b"POST", b"v" * 4064]),
)


@st.composite
def fields(draw):
    """One field of a block; indices may be wrong."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return model.encode_number(draw(st.sampled_from([0, 40, 64, 128, 4096])), 5, 32)
    if kind <= 3:
        return model.encode_number(draw(st.integers(0, 100)), 7, 0x80)
    is_inserted = draw(st.booleans())
    bits, pattern = (6, 0x40) if is_inserted else (4, draw(st.sampled_from([0, 16])))
    value = model.encode_text(draw(values), draw(st.booleans()))
    if kind <= 5:
        index = draw(st.integers(1, 80))
        return model.encode_number(index, bits, pattern) + value
    name = model.encode_text(draw(names), draw(st.booleans()))
    return bytes([pattern]) + name + value


def outcome(read, block):
    try:
        return read(block)
    except (ValueError, model.Broken):
        return None


@given(
    st.sampled_from([0, 64, 2048, 4096]),
    st.lists(st.lists(fields(), max_size=6).map(b"".join), max_size=12),
)
def test_blocks_as_the_model_reads_them(announced, blocks):
    decoder, table = HeaderDecoder(announced), model.Table(announced)
    for block in blocks:
        expected = outcome(lambda b: model.decode(table, b), block)
        headers = outcome(decoder.decode, block)
        assert (headers is None) == (expected is None)
        if headers is None:
            return
        assert pairs(headers) == expected
        assert (decoder.used_size, decoder.count) == (table.used, len(table.entries))


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_as_the_model_reads_them(blocks):
    decoder, table = HeaderDecoder(), model.Table()
    for block in blocks:
        expected = outcome(lambda b: model.decode(table, b), block)
        headers = outcome(decoder.decode, block)
        assert (None if headers is None else pairs(headers)) == expected
        if headers is None:
            return
