"""Signatures: those that Java clients sent are recomputed."""

import base64

import pytest

from rmq.access.signature import is_signed, sign, signature_of, signed_content
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import decode
from tests.golden.recordings import read_rows

SECRET = "goldenSecretKey"


def recorded_requests(golden, name):
    rows = read_rows(golden / "frames" / f"{name}.jsonl")
    return [decode(base64.b64decode(row["raw"])) for row in rows if row["dir"] == "c2s"]


@pytest.mark.parametrize("name", ["java55-acl", "java49-acl"])
def test_each_recorded_signature_is_recomputed(golden, name):
    requests = recorded_requests(golden, name)
    signed = [r for r in requests if "Signature" in r.ext_fields]
    assert len({r.code for r in signed}) >= 5
    for request in signed:
        assert (
            signature_of(signed_content(request), SECRET)
            == request.ext_fields["Signature"]
        )
        assert is_signed(request, SECRET)
        assert not is_signed(request, "anotherKey")
        request.ext_fields["added"] = "x"
        assert not is_signed(request, SECRET)


def test_the_body_is_signed_too(golden):
    request = next(r for r in recorded_requests(golden, "java55-acl") if r.body)
    request.body += b" "
    assert not is_signed(request, SECRET)


def test_old_clients_leave_the_unique_key_flag_out():
    fields = {"b": "2", "a": "1", "_UNIQUE_KEY_QUERY": "true", "Signature": "?"}
    assert (
        signed_content(Command(RequestCode.QUERY_MESSAGE, fields, b"!", version=399))
        == b"12!"
    )
    assert (
        signed_content(Command(RequestCode.QUERY_MESSAGE, fields, b"!", version=400))
        == b"true12!"
    )


def test_names_are_in_the_order_of_utf16_units():
    fields = {"\uff5e": "late", "\U0001f600": "early", "a": "first"}
    assert signed_content(Command(1, fields)) == b"firstearlylate"


def test_a_request_without_signature_is_not_signed():
    assert not is_signed(Command(RequestCode.SEND_MESSAGE, {"AccessKey": "a"}), "")


@pytest.mark.parametrize("text", ["", "é", "\ud800", "x" * 10_000])
def test_any_text_may_stand_where_the_signature_is_expected(text):
    assert not is_signed(Command(RequestCode.SEND_MESSAGE, {"Signature": text}), SECRET)


def test_a_request_of_ours_is_signed_as_that_of_a_client(golden):
    recorded = next(
        r
        for r in recorded_requests(golden, "java55-acl")
        if "Signature" in r.ext_fields
    )
    fields = dict(recorded.ext_fields)
    wanted, name = fields.pop("Signature"), fields.pop("AccessKey")
    ours = Command(recorded.code, fields, recorded.body, version=recorded.version)
    sign(ours, name, SECRET)
    assert ours.ext_fields["Signature"] == wanted
    sign(ours, name, SECRET)
    assert ours.ext_fields["Signature"] == wanted, "a second time it is the same"
