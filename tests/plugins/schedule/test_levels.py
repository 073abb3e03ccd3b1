"""The offsets of delay levels that a slave copies from its master."""

import pytest

from rmq.core.clock import SystemClock
from rmq.plugin import RequestRejected
from rmq_plugins.schedule.levels import DelayOffsets

GOOD = b'{"dataVersion":{},"offsetTable":{1:7,3:9}}'


@pytest.fixture
def offsets(tmp_path):
    return DelayOffsets(tmp_path, SystemClock(), 1, lambda: None)


def test_a_copy_replaces_the_table(offsets):
    offsets.set(2, 5)
    offsets.copy(GOOD)
    assert [offsets.get(level) for level in (1, 2, 3)] == [7, 0, 9]


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"offsetTable":{1:"x"}}',
        b'{"offsetTable":{"a":1}}',
        b'{"offsetTable":3}',
    ],
)
def test_a_wrong_table_changes_nothing(offsets, body):
    offsets.copy(GOOD)
    with pytest.raises(RequestRejected):
        offsets.copy(body)
    with pytest.raises(RequestRejected):
        offsets.raise_to(body)
    assert [offsets.get(level) for level in (1, 3)] == [7, 9]
