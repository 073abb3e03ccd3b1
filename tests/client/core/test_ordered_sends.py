"""Lanes: what is stored of a key is in the order in which it was sent, without gaps."""

from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.batches import BatchLimits
from rmq.client.core.ordered_sends import KeyedMessage, OrderedSendQueue

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.booleans()),
        st.tuples(st.just("succeed")),
        st.tuples(st.just("fail")),
        st.tuples(st.just("withdraw"), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(STEPS, st.integers(1, 4))
def test_the_order_of_a_key_under_any_failures(steps, max_count):
    sends = OrderedSendQueue(BatchLimits(max_count, 500))
    stored, failed, sent, keys = [], [], [], {}
    under_way = []
    for step in steps:
        if step[0] == "add":
            number = len(sent)
            sent.append(number)
            keys[number] = step[1]
            sends.add(KeyedMessage(step[1], number, 50, step[2]))
        elif step[0] == "withdraw" and step[1] < len(sent):
            if sends.withdraw(sent[step[1]]):
                failed.append(sent[step[1]])
        elif step[0] == "succeed" and under_way:
            sends.record_success()
            stored += [each.item for each in under_way]
            under_way = []
        elif step[0] == "fail" and under_way:
            failed += [each.item for each in under_way]
            lost = sends.record_failure()
            assert {keys[each] for each in lost} <= {each.key for each in under_way}
            failed += lost
            under_way = []
        if not under_way:
            under_way = sends.next()
            assert len(under_way) <= max_count
            assert len(under_way) == 1 or not any(each.alone for each in under_way)
        else:
            assert sends.next() == []
    for key in "abc":
        of_key = [each for each in stored if keys[each] == key]
        assert of_key == sorted(of_key)
    assert not set(stored) & set(failed)
    assert sends.is_empty == (len(stored) + len(failed) == len(sent))


def test_later_ones_of_the_key_fail_with_it():
    sends = OrderedSendQueue(BatchLimits(1, 500))
    for number, key in enumerate("aba"):
        sends.add(KeyedMessage(key, number, 50, alone=False))
    sends.next()
    assert sends.record_failure() == [2]
    assert [each.item for each in sends.next()] == [1]
