"""Handles of popped messages: places in answers, joined acknowledgements."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.pop import MAX_SPAN, PopResult, ReceiptHandle, acks_of
from rmq.protocol.handles import PopHandle
from rmq.protocol.headers.pop import PopMessageResponseHeader

HEADER = PopMessageResponseHeader(
    pop_time=1_700_000_000_000,
    invisible_time=60_000,
    revive_qid=3,
    rest_num=0,
    start_offset_info="0 1 5;1 0 7;0 2 9",
    msg_offset_info="0 1 5,6;1 0 7;0 2 9,12",
)


def place(queue_id, offset, **more):
    options = {"is_retry": False, "checkpoint": None, **more}
    return PopResult(HEADER, "broker-a").handle_of(queue_id, offset, **options)


def test_a_handle_has_the_start_of_its_queue():
    assert place(2, 12).text == "9 1700000000000 60000 3 0 broker-a 2 12"
    assert place(2, 12).topic("T", "G") == "T"


def test_a_message_that_comes_again_has_its_handle():
    known = "7 1700000000000 60000 3 1 broker-a 0 7"
    found = place(0, 7, is_retry=True, checkpoint=known)
    assert found.text == known
    assert found.topic("T", "G") == "%RETRY%G_T"
    assert found == place(0, 7, is_retry=True)


def test_a_handle_that_a_program_has_copied_is_not_believed():
    assert place(1, 6, checkpoint="1 2 3 4 0 other 1 6") == place(1, 6)


@pytest.mark.parametrize("known", ["", "a b", "7 x 60000 3 1 broker-a 0 7"])
def test_a_damaged_handle_is_named(known):
    with pytest.raises(ValueError, match="damaged"):
        place(0, 7, is_retry=True, checkpoint=known)


def test_a_message_that_the_answer_does_not_name():
    with pytest.raises(ValueError, match="has no handle for offset 8 of queue 1"):
        place(1, 8)


def places(start, queue_id, offsets):
    handle = PopHandle(start, 100 + start, 60_000, 2, "0", "b")
    return [ReceiptHandle(handle, queue_id, start + each) for each in offsets]


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 9), st.integers(0, 3)),
        st.sets(st.integers(0, MAX_SPAN - 1), min_size=1, max_size=40),
        max_size=5,
    )
)
def test_each_acknowledged_offset_has_its_bit(table):
    given_places = [
        each
        for (start, queue_id), offsets in table.items()
        for each in places(start, queue_id, offsets)
    ]
    found = {
        (entry.start, entry.queue_id): {
            8 * at + bit
            for at, byte in enumerate(base64.b64decode(entry.bits))
            for bit in range(8)
            if byte >> bit & 1
        }
        for entry in acks_of(given_places, "T", "G")
    }
    assert found == table


def test_an_entry_has_what_java_reads():
    (entry,) = acks_of(places(4, 1, [0, 9]), "T", "G")
    assert entry.encode() == (
        b'{"b":"AQI=","c":"G","it":60000,"pt":104,"q":1,"r":"0","rq":2,"so":4,"t":"T"}'
    )


def test_what_lies_far_away_goes_alone():
    near, far = places(0, 0, [MAX_SPAN - 1, MAX_SPAN])
    assert (near.can_join, far.can_join) == (True, False)
