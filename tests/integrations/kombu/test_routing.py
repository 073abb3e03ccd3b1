"""Which topics a queue reads."""

from rmq.integrations.kombu.routing import (
    Binding,
    Reading,
    plan_durable,
    plan_ephemeral,
)
from rmq.integrations.names import Names

NAMES = Names()


def test_a_durable_queue_reads_its_topic():
    own = Binding("mail", "direct", "mail")
    assert plan_durable(NAMES, "mail", [own]) == [Reading("mail")]


def test_a_direct_exchange_is_read_by_tags():
    bindings = [Binding("tasks", "direct", "video"), Binding("tasks", "direct", "a.b")]
    assert plan_durable(NAMES, "video", bindings) == [
        Reading("video"),
        Reading("%X%tasks", frozenset({"video", "a%2Eb"})),
    ]


def test_a_topic_exchange_is_read_by_patterns():
    bindings = [
        Binding("news", "topic", "x.*", "^x"),
        Binding("news", "topic", "#", "."),
    ]
    assert plan_durable(NAMES, "q", bindings)[1:] == [
        Reading("%X%news", frozenset(), ("^x", "."))
    ]


def test_a_queue_bound_to_the_name_of_another_reads_its_topic():
    assert plan_durable(NAMES, "q", [Binding("mail", "direct", "mail")]) == [
        Reading("q"),
        Reading("mail"),
    ]


def test_a_queue_of_a_process_reads_its_name_in_the_shared_topic():
    bindings = [Binding("reply", "direct", "key")]
    assert plan_ephemeral(NAMES, "q-1", bindings) == [
        Reading("%X%", frozenset({"q-1"})),
        Reading("%X%reply", frozenset({"key"})),
    ]


def test_a_queue_of_a_fanout_does_not_read_the_shared_topic():
    assert plan_ephemeral(NAMES, "q-1", [Binding("pidbox", "fanout", "")]) == [
        Reading("%X%pidbox")
    ]
