"""Ways around access control that were found: what is asked for is what is touched."""

import pytest
import trio

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq_plugins.transaction.transaction_check import Checker
from tests.plugins.conftest import RecordingConnection
from tests.security.estate import USERS

REPLY = "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01p@vera\x02"
OWN_REPLIES = "DefaultCluster_REPLY_TOPIC"


def refused(estate, user, code, fields, body=b"", **more):
    """Ask, and see that it is refused and nothing has changed."""
    before = estate.digest()
    answer = estate.ask(user, code, fields, body, **more)
    assert answer.code == ResponseCode.NO_PERMISSION, (answer.code, answer.remark)
    assert estate.digest() == before
    return answer.remark


def ending(estate, how=12, **more):
    return {
        "producerGroup": "TheirProducers",
        "tranStateTableOffset": estate.half_queue_offset,
        "commitLogOffset": estate.half,
        "commitOrRollback": how,
        "msgId": "x",
        **more,
    }


@pytest.mark.parametrize("topic", [OWN_REPLIES, "Secret", "%RETRY%TheirGroup"])
@pytest.mark.parametrize("code", [324, 325])
def test_replies_are_stored_nowhere_without_a_right(estate, code, topic):
    names = ("topic", "properties") if code == 324 else ("b", "i")
    fields = dict(zip(names, (topic, REPLY), strict=True))
    before = estate.digest()
    for user in ("sam", "ann"):
        estate.user = user
        assert estate.send(code=code, **fields).code == ResponseCode.NO_PERMISSION
    assert estate.digest() == before


def test_who_may_publish_replies_reaches_the_client(estate):
    estate.user = "vera"
    assert estate.send(OWN_REPLIES, code=324, properties=REPLY).code == 0
    assert [each.code for each in estate.producer.sent] == [326]


@pytest.mark.parametrize("topic", [{}, {"topic": "Mine"}, {"topic": "Theirs"}])
@pytest.mark.parametrize("how", [8, 12])
@pytest.mark.parametrize("user", ["sam", "ann"])
def test_a_transaction_is_ended_by_who_may_publish_to_its_topic(
    estate, user, how, topic
):
    refused(estate, user, 37, ending(estate, how, **topic))
    assert estate.ask("vera", RequestCode.END_TRANSACTION, ending(estate, 8)).code == 0
    assert estate.broker.store.reads.max_offset("Theirs", 0) == 2


def test_a_transaction_is_ended_by_the_user_of_its_producer_group(estate):
    estate.make_user("eve", USERS["vera"])
    remark = refused(estate, "eve", 37, ending(estate))
    assert "TheirProducers belongs to another user" in remark
    estate.broker.producers.on_close(estate.producer)
    assert estate.ask("eve", RequestCode.END_TRANSACTION, ending(estate)).code == 0


def test_a_given_up_transaction_is_resumed_by_who_administers_its_topic(estate):
    fields = {"topic": "Mine", "msgId": estate.id_of(estate.given_up)}
    assert "Topic:Theirs" in refused(estate, "ann", 323, fields)
    assert (
        estate.ask(
            "vera", RequestCode.RESUME_CHECK_HALF_MESSAGE, fields | {"topic": "Theirs"}
        ).code
        == 0
    )


def test_a_message_is_shown_to_who_may_read_its_topic(estate):
    fields = {"topic": "Mine", "offset": estate.message}
    assert "Topic:Theirs" in refused(estate, "ann", 33, fields)
    half = {"topic": "Mine", "offset": estate.half}
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in refused(estate, "ann", 33, half)
    assert (
        estate.ask(
            "vera", RequestCode.VIEW_MESSAGE_BY_ID, fields | {"topic": "Theirs"}
        ).code
        == 0
    )


@pytest.mark.parametrize("what", ["message", "half"])
def test_a_message_is_given_back_by_who_may_read_its_topic(estate, what):
    fields = {"offset": getattr(estate, what), "group": "MyGroup", "delayLevel": 1}
    refused(estate, "ann", 36, fields)
    own = {"offset": estate.message, "group": "TheirGroup", "delayLevel": 1}
    assert estate.ask("vera", RequestCode.CONSUMER_SEND_MSG_BACK, own).code == 0


def test_a_message_is_pushed_to_who_may_read_its_topic(estate):
    connection = RecordingConnection(41_009)
    estate.beat("ann", connection, "c@ann", consumers={"MyGroup": ["Mine"]})
    connection.sent.clear()
    fields = {
        "consumerGroup": "MyGroup",
        "clientId": "c@ann",
        "topic": "Mine",
        "msgId": estate.id_of(estate.message),
    }
    assert "Topic:Theirs" in refused(estate, "ann", 309, fields)
    assert not connection.sent
    fields |= {"consumerGroup": "TheirGroup", "clientId": "c@vera", "topic": "Theirs"}
    assert estate.ask("vera", RequestCode.CONSUME_MESSAGE_DIRECTLY, fields).code == 0
    assert [each.code for each in estate.consumer.sent] == [309]


def test_offsets_are_cloned_from_groups_that_one_may_see(estate):
    fields = {"srcGroup": "TheirGroup", "destGroup": "MyGroup", "topic": "Mine"}
    assert "Group:TheirGroup" in refused(estate, "ann", 314, fields)


@pytest.mark.parametrize(
    ("client_id", "group", "word"),
    [
        ("spy@1", "TheirProducers", "producer group TheirProducers"),
        ("p@vera", "MyProducers", "client id p@vera"),
    ],
)
def test_producers_of_others_are_not_joined(estate, client_id, group, word):
    before = estate.digest()
    answer = estate.beat("ann", estate.stranger, client_id, producers=["X", group])
    assert answer.code == ResponseCode.NO_PERMISSION
    assert f"the {word} belongs to another user" in answer.remark
    assert estate.digest() == before
    estate.broker.producers.on_close(estate.producer)
    again = estate.beat("ann", estate.stranger, client_id, producers=[group])
    assert again.code == 0


def test_a_client_comes_back_on_another_connection(estate):
    answer = estate.beat(
        "vera", estate.stranger, "p@vera", producers=["TheirProducers"]
    )
    assert answer.code == 0
    assert estate.broker.producers.connection("p@vera") is estate.stranger


@pytest.mark.parametrize(
    "group", ["CLIENT_INNER_PRODUCER", "_INNER_TRACE_PRODUCER-MyGroup-CONSUME-1"]
)
def test_groups_that_java_joins_by_itself_are_everybodys(estate, group):
    """Clients with such a group alone, as of consumers, may share an id."""
    for user, port in (("vera", 41_005), ("ann", 41_006), ("sam", 41_007)):
        connection = RecordingConnection(port)
        answer = estate.beat(user, connection, "ip@DEFAULT", producers=[group])
        assert answer.code == 0, answer.remark


def test_such_a_group_takes_no_replies_of_others(estate):
    groups = ["CLIENT_INNER_PRODUCER"]
    assert estate.beat("ann", estate.stranger, "p@vera", producers=groups).code == 0
    assert estate.broker.producers.connection("p@vera") is estate.producer


def test_a_half_is_shown_to_producers_that_may_publish_to_its_topic(estate, clock):
    """Who is first in a group may be a spy: its rights count, not its place."""
    estate.broker.producers.on_close(estate.producer)
    estate.beat("ann", estate.stranger, "spy@1", producers=["TheirProducers"])
    estate.producer.sent.clear()
    clock.ms += 3_600_000
    trio.run(Checker(estate.broker, estate.half_log()).check_round)
    assert not estate.stranger.sent
    estate.broker.producers.on_close(estate.stranger)
    estate.beat("vera", estate.producer, "p@vera", producers=["TheirProducers"])
    clock.ms += 1_000
    trio.run(Checker(estate.broker, estate.half_log()).check_round)
    assert {each.code for each in estate.producer.sent} == {39}


def test_a_code_that_needs_no_signature_has_no_user(make_estate):
    """`AccessKey=root` is a claim that nobody has proved."""
    estate = make_estate(authenticationWhitelist="310,34")
    fields = {
        "a": "PG", "b": "Theirs", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0,
        "h": 0, "AccessKey": "root",
    }  # fmt: skip
    remark = refused(estate, None, 310, fields, b"x")
    assert remark.startswith("Authorization failed.")
    refused(estate, "root", 310, fields, b"x")
    estate.beat(None, estate.stranger, "n@1", producers=["Nobodys"])
    (member,) = estate.broker.producers.members("Nobodys").values()
    assert member.user == ""


def test_on_both_white_lists_anybody_may(make_estate):
    lists = {"authenticationWhitelist": "310", "authorizationWhitelist": "310"}
    estate = make_estate(**lists)
    fields = {
        "a": "PG", "b": "Theirs", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0,
    }  # fmt: skip
    assert estate.ask(None, RequestCode.SEND_MESSAGE_V2, fields, b"x").code == 0


def test_a_code_on_the_list_is_not_asked_about_what_it_finds_either(make_estate):
    estate = make_estate(authorizationWhitelist="33")
    assert (
        estate.ask(
            "sam", RequestCode.VIEW_MESSAGE_BY_ID, {"offset": estate.message}
        ).code
        == 0
    )
