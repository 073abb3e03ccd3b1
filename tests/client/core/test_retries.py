"""What happens after a failed send."""

from rmq.client.core.retries import ANOTHER_BROKER, MAX_BACK_OFF_MS, back_off_ms
from rmq.protocol.codes import ResponseCode


def test_the_codes_are_javas():
    assert set(ANOTHER_BROKER) == {17, 14, 1, 2, 16, 204, 205, 1500}


def test_a_busy_broker_is_not_asked_at_once():
    assert back_off_ms(1, ResponseCode.SYSTEM_ERROR) == 0
    assert back_off_ms(1, ResponseCode.SYSTEM_BUSY) > 0
    assert back_off_ms(1, None) > 0
    assert back_off_ms(99, None) == MAX_BACK_OFF_MS
