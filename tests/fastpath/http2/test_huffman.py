"""Huffman codes of headers, against appendix B of the RFC and a slow model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.http2.huffman import decode_text
from tests.model import hpack as model


def model_text(coded):
    try:
        return model.decode_huffman(coded)
    except model.Broken:
        return None


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_each_letter(count):
    for letter in range(256):
        text = bytes([letter]) * count
        assert decode_text(model.encode_huffman(text)) == text


@pytest.mark.parametrize(
    ("coded", "text"),
    [
        ("f1e3 c2e5 f23a 6ba0 ab90 f4ff", b"www.example.com"),
        ("a8eb 1064 9cbf", b"no-cache"),
        ("25a8 49e9 5ba9 7d7f", b"custom-key"),
        ("9d29 ad17 1863 c78f 0b97 c8e9 ae82 ae43 d3", b"https://www.example.com"),
        ("", b""),
    ],
)
def test_examples_of_the_rfc(coded, text):
    assert decode_text(bytes.fromhex(coded)) == text


@pytest.mark.parametrize(
    "coded",
    [
        "ff",  # eight bits of padding
        "fffffffc",  # the end of the text, then padding of zeros
        "ffffffff",  # the end of the text
        "00" * 3 + "f8",  # a letter, then padding that is not ones
        "18",  # "a", then 000
        "1fff",  # "a", then eleven bits of padding
    ],
)
def test_wrong_ends(coded):
    coded = bytes.fromhex(coded)
    assert decode_text(coded) == model_text(coded)


@given(st.binary(max_size=80))
def test_texts_come_back(text):
    assert decode_text(model.encode_huffman(text)) == text


@given(st.binary(max_size=80))
def test_any_bytes_as_the_model_reads_them(coded):
    assert decode_text(coded) == model_text(coded)
