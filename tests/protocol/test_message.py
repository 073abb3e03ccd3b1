from rmq.protocol.hosts import host_bytes
from rmq.protocol.message import Message

HOST = host_bytes("127.0.0.1", 10911)


def message(**fields):
    defaults = {
        "topic": "T", "queue_id": 0, "body": b"b", "flag": 0, "sys_flag": 0,
        "born_timestamp": 1, "born_host": HOST,
    }  # fmt: skip
    return Message(**defaults | fields)


def test_unedited_properties_are_stored_as_received():
    text = "a\x011\x02a\x012"
    assert (
        message(properties={"a": "2"}, properties_text=text).stored_properties() == text
    )


def test_edited_properties_are_written_anew():
    edited = message(properties={"a": "1"}, properties_text="a\x011")
    edited.set_property("b", "2")
    assert edited.stored_properties() == "a\x011\x02b\x012\x02"
    assert edited.remove_property("a") == "1"
    assert edited.stored_properties() == "b\x012\x02"


def test_removing_what_is_not_there_changes_nothing():
    text = "a\x011"
    untouched = message(properties={"a": "1"}, properties_text=text)
    assert untouched.remove_property("b") is None
    assert untouched.stored_properties() == text
