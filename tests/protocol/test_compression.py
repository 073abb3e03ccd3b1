"""Opening of compressed bodies: whole, broken, with and without the packages."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.protocol.compression import decompress_body, decompress_start, open_body
from tests.broken_bodies import BROKEN, LIMIT, PLAIN, WHOLE


def needs_package(name):
    return not name.startswith("zlib")


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_body_is_opened_if_its_package_is_there(name, packages):
    flag, body = WHOLE[name]
    is_open = packages or not needs_package(name)
    assert open_body(body, flag) == (PLAIN if is_open else body)
    if is_open:
        assert decompress_start(body, flag, 9) == PLAIN[:9]
        assert decompress_start(body, flag, LIMIT - 1) == PLAIN
    else:
        package = "lz4" if name == "lz4" else "zstandard"
        with pytest.raises(ValueError, match=f"install the package {package}$"):
            decompress_body(body, flag)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_body_stays_as_it_is(name, packages):
    flag, body = BROKEN[name]
    assert open_body(body, flag) == body
    with pytest.raises(ValueError, match="its"):
        decompress_body(body, flag)


@given(st.binary(max_size=60), st.integers(0, 0xFFF), st.sampled_from(list(WHOLE)))
def test_no_body_raises_another_error(tail, flag, name):
    whole = WHOLE[name][1]
    for body in (tail, whole[:8] + tail, whole + tail):
        open_body(body, flag)


def test_a_body_of_the_highest_size_is_opened():
    packed = zlib.compress(bytes(1 << 20))
    assert open_body(packed, 0x1) == bytes(1 << 20)
