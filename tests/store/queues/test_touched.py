"""The ends of queues are made when somebody looks at them."""

from rmq._fastpath.log.queue_tail import QueueTail
from rmq.store.queues.touched import TouchedQueues


def test_ends_are_those_of_the_first_look():
    one, other = QueueTail("A", 0), QueueTail("B", 3)
    touched = TouchedQueues([one, other])
    assert len(touched) == 2
    one.publish(0, 100, 0)
    assert touched == {("A", 0): 1, ("B", 3): 0}
    one.publish(100, 100, 0)
    assert dict(touched.items()) == {("A", 0): 1, ("B", 3): 0}
    assert ("A", 0) in touched
    assert ("A", 1) not in touched


def test_no_queues_are_false():
    assert not TouchedQueues([])
    assert TouchedQueues([]) == {}
