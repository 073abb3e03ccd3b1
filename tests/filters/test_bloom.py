"""Bloom data: shapes and positions that RocketMQ 5.5.0 computes."""

import pytest

from rmq.filters.bloom import bloom_positions, bloom_shape

LONG = "orders-consumer-group#orders-topic-which-is-long"


@pytest.mark.parametrize(
    ("options", "shape", "positions"),
    [
        ((20, 32), (3, 112), ([24, 26, 83], [80, 99, 105], [107, 43, 61])),
        (
            (10, 128),
            (4, 616),
            ([192, 82, 27, 174], [416, 379, 273, 310], [219, 547, 229, 78]),
        ),
    ],
)
def test_java_agrees(options, shape, positions):
    made = bloom_shape(*options)
    assert made == shape
    texts = ("G#T", LONG, "日本#é")
    assert tuple(bloom_positions(text, made) for text in texts) == positions
