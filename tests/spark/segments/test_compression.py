import zlib

import pytest

from rmq_spark.segments import compression


def test_zlib_in_both_forms():
    packed = zlib.compress(b"x" * 1000)
    for flag in (0x1, 0x301):
        assert compression.open_body(flag, packed) == b"x" * 1000


def test_lz4_and_zstandard():
    lz4 = pytest.importorskip("lz4.frame")
    zstandard = pytest.importorskip("zstandard")
    assert compression.open_body(0x101, lz4.compress(b"y" * 1000)) == b"y" * 1000
    packed = zstandard.ZstdCompressor().compress(b"z" * 1000)
    assert compression.open_body(0x201, packed) == b"z" * 1000
    for flag, cut in ((0x101, lz4.compress(b"y" * 99)[:20]), (0x201, packed[:9])):
        with pytest.raises(ValueError, match="its"):
            compression.open_body(flag, cut)


@pytest.mark.parametrize("flag", [0x1, 0x101, 0x201, 0x301, 0x701])
def test_what_cannot_be_opened_says_so(flag):
    with pytest.raises(ValueError, match="its"):
        compression.open_body(flag, b"no such thing")
    assert compression.keep_if_broken(flag, b"no such thing") == b"no such thing"


def test_a_body_that_grows_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(compression, "MAX_BODY_BYTES", 1000)
    for body in (zlib.compress(bytes(1001)), zlib.compress(bytes(500))[:-6]):
        with pytest.raises(ValueError, match="cut short, or too large"):
            compression.open_body(1, body)
    assert compression.open_body(1, zlib.compress(bytes(999))) == bytes(999)
