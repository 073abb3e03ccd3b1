"""Grants: right signatures of known users pass, everything else is left to Python."""

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.reactor.grants import Grants, SignedTemplates
from rmq._fastpath.reactor.signatures import hmac_sha1
from rmq.access.signature import is_signed, sign
from rmq.protocol.codes import LanguageCode, SerializeType
from rmq.protocol.command import Command
from rmq.protocol.frames import decode, encode

HERE = b"\x7f\x00\x00\x01"
RULES = {11: ("topic", "consumerGroup"), 310: ("b",)}
names = st.text("abcdefgXYZ_09", min_size=1, max_size=9)
values = st.text(max_size=40) | st.text('"\\/\x01\x02\n\u00e9abc', max_size=90)


def signed(fields, body=b"", *, user="ann", secret="s", code=310, version=513):
    request = Command(code, dict(fields), body)
    request.version = version
    sign(request, user, secret)
    return request


def taught(*, topic="T", user="ann", secret="s"):
    grants = Grants(RULES)
    grants.register(310, HERE, user, secret, (topic,))
    return grants


def frame(request, kind=SerializeType.JSON):
    request.serialize_type = kind
    return encode(request)


@given(
    fields=st.dictionaries(names, values, max_size=12),
    body=st.binary(max_size=300),
    secret=st.text(min_size=1, max_size=90),
    kind=st.sampled_from(SerializeType),
    change=st.integers(0, 10_000),
)
def test_what_python_finds_signed_passes_and_nothing_else(
    fields, body, secret, kind, change
):
    grants = taught(secret=secret)
    data = frame(signed(fields | {"b": "T"}, body, secret=secret), kind)
    given_up = kind is SerializeType.ROCKETMQ and "" in fields.values()
    assert grants.allows(data, HERE) or given_up
    place = 8 + change % (len(data) - 8)
    changed = bytearray(data)
    changed[place] ^= 1 << change % 8
    if grants.allows(bytes(changed), HERE):
        read = decode(bytes(changed))
        assert is_signed(read, secret)
        assert read.ext_fields["b"] == "T"
        assert read.ext_fields["AccessKey"] == "ann"


@pytest.mark.parametrize("size", [*range(40, 70), 119, 120, 128, 5000, 70_000])
def test_bodies_of_every_size_around_a_block(size):
    grants = taught()
    assert grants.allows(frame(signed({"b": "T"}, b"x" * size)), HERE)
    assert not grants.allows(frame(signed({"b": "T"}, b"x" * size))[:-1] + b"y", HERE)


@given(st.binary(max_size=150), st.binary(max_size=700), st.booleans())
def test_signatures_are_those_of_the_standard_library(secret, content, plain):
    right = hmac.digest(secret, content, "sha1")
    assert hmac_sha1(secret, content, plain=plain) == right


def test_another_user_topic_address_code_or_secret_is_unknown():
    grants = taught()
    good = {"b": "T"}
    assert grants.allows(frame(signed(good)), HERE)
    assert not grants.allows(frame(signed(good)), b"\x7f\x00\x00\x02")
    assert not grants.allows(frame(signed(good, user="bob")), HERE)
    assert not grants.allows(frame(signed(good, secret="t")), HERE)
    assert not grants.allows(frame(signed({"b": "U"})), HERE)
    assert not grants.allows(frame(signed({})), HERE)
    assert not grants.allows(frame(signed(good, code=11)), HERE)
    assert not grants.allows(frame(signed(good, code=15)), HERE)
    assert (grants.allowed, grants.unsigned) == (1, 1)
    assert grants.unknown == 6


def test_without_signature_or_user_nothing_passes():
    grants = taught()
    for missing in ("Signature", "AccessKey"):
        request = signed({"b": "T"})
        del request.ext_fields[missing]
        assert not grants.allows(frame(request), HERE)
    empty = signed({"b": "T"}, user="")
    grants.register(310, HERE, "", "s", ("T",))
    assert not grants.allows(frame(empty), HERE)


def test_names_run_together_do_not_give_the_rights_of_others():
    grants = Grants(RULES)
    grants.register(11, HERE, "ann", "s", ("TT", "G"))
    allowed = signed({"topic": "TT", "consumerGroup": "G"}, code=11)
    other = signed({"topic": "T", "consumerGroup": "TG"}, code=11)
    absent = signed({"topic": "TTG"}, code=11)
    assert grants.allows(frame(allowed), HERE)
    assert not grants.allows(frame(other), HERE)
    assert not grants.allows(frame(absent), HERE)


def test_absent_is_not_empty():
    grants = Grants(RULES)
    grants.register(11, HERE, "ann", "s", ("T", None))
    assert grants.allows(frame(signed({"topic": "T"}, code=11)), HERE)
    empty = signed({"topic": "T", "consumerGroup": ""}, code=11)
    assert not grants.allows(frame(empty), HERE)


def test_fields_of_old_clients_that_are_not_signed_are_left_to_python():
    grants = taught()
    fields = {"b": "T", "_UNIQUE_KEY_QUERY": "true"}
    assert not grants.allows(frame(signed(fields, version=399)), HERE)
    assert grants.allows(frame(signed(fields, version=400)), HERE)


def test_clients_that_send_other_fields_take_turns():
    grants = taught()
    one = frame(signed({"b": "T", "z": "1", "a": "2"}))
    other = frame(signed({"a": "1", "b": "T", "c": "2"}))
    for _ in range(3):
        assert grants.allows(one, HERE)
        assert grants.allows(other, HERE)


def test_forgotten_means_unknown_and_the_table_has_a_limit():
    grants = taught()
    data = frame(signed({"b": "T"}))
    grants.unregister_all()
    assert not grants.allows(data, HERE)
    for number in range(4096):
        grants.register(310, HERE, "ann", "s", (f"T{number}",))
    assert len(grants) == 4096
    grants.register(310, HERE, "ann", "s", ("T0",))
    assert len(grants) == 4096
    grants.register(310, HERE, "ann", "s", ("T",))
    assert len(grants) == 1
    assert grants.allows(data, HERE)


def test_names_that_are_too_long_are_left_to_python():
    grants = Grants(RULES)
    grants.register(310, HERE, "ann", "s", ("T" * 2000,))
    assert len(grants) == 0
    assert not grants.allows(frame(signed({"b": "T" * 2000})), HERE)


def test_a_wrong_rule_is_an_error():
    with pytest.raises(ValueError, match="code 11: 1 values"):
        Grants(RULES).register(11, HERE, "ann", "s", ("T",))
    with pytest.raises(ValueError, match="code 11"):
        Grants({11: ("a", "b", "c", "d", "e")})


def test_other_languages_and_flags_do_not_matter():
    request = signed({"b": "T"})
    request.language = LanguageCode.GO
    assert taught().allows(frame(request), HERE)


# -- headers that match a learned template

VARYING = ("b", "i", "e")
plain = st.text("abc%_", min_size=1, max_size=9)


@given(
    constant=st.dictionaries(names, values, max_size=12),
    first=st.tuples(plain, values, values),
    second=st.tuples(plain, values, values),
    body=st.binary(max_size=300),
    change=st.integers(0, 10_000),
)
def test_a_header_that_is_recognised_is_checked_as_one_that_is_scanned(
    constant, first, second, body, change
):
    grants = Grants(RULES)
    for topic in {first[0], second[0]}:
        grants.register(310, HERE, "ann", "s", (topic,))
    templates = SignedTemplates(grants, VARYING)
    for found, (topic, properties, queue) in enumerate((first, second, first)):
        fields = constant | {"b": topic, "i": properties, "e": queue}
        data = frame(signed(fields, body))
        assert templates.allows(data, HERE) == (found > 0, True)
        changed = bytearray(data)
        changed[8 + change % (len(data) - 8)] ^= 1 << change % 8
        known, allowed = templates.allows(bytes(changed), HERE)
        assert allowed == grants.allows(bytes(changed), HERE)
        if allowed:
            read = decode(bytes(changed))
            assert is_signed(read, "s")
            assert read.ext_fields["b"] in (first[0], second[0])
        if not known:  # it may have been learned
            templates.allows(data, HERE)


def learned(grants, fields=None, **more):
    templates = SignedTemplates(grants, VARYING)
    fields = fields or {"a": "x", "b": "T", "i": "p"}
    assert templates.allows(frame(signed(fields, **more)), HERE) == (False, True)
    assert templates.allows(frame(signed(fields, **more)), HERE) == (True, True)
    return templates


def test_a_recognised_header_gives_no_other_rights():
    grants = taught()
    templates = learned(grants)
    alike = {"a": "x", "b": "T", "i": "other"}
    assert templates.allows(frame(signed(alike)), HERE) == (True, True)
    for other in (
        signed(alike | {"b": "U"}),
        signed(alike | {"b": ""}),
        signed(alike | {"b": 'T"'}),
        signed(alike, secret="t"),
    ):
        assert templates.allows(frame(other), HERE) == (True, False)
    assert templates.allows(frame(signed(alike)), b"\x7f\x00\x00\x02") == (True, False)
    assert templates.allows(frame(signed(alike, user="bob")), HERE) == (False, False)
    assert templates.allows(frame(signed(alike)) + b"more", HERE) == (True, False)
    assert templates.allows(frame(signed(alike)), HERE) == (True, True)
    grants.unregister_all()
    assert templates.allows(frame(signed(alike)), HERE) == (True, False)


@pytest.mark.parametrize("other", ["", "A" * 27, "A" * 28, "A" * 29, "\\u0041" * 28])
def test_another_signature_of_any_size_is_refused(other):
    templates = learned(taught())
    right = signed({"a": "x", "b": "T", "i": "p"})
    right.ext_fields["Signature"] = other
    data = frame(right)
    assert templates.allows(data, HERE) == (True, False)


@pytest.mark.parametrize("size", [8_000, 8_200, 60_000])
def test_long_values_of_a_recognised_header_are_left_to_python(size):
    templates = learned(taught())
    data = frame(signed({"a": "x", "b": "T", "i": "p" * size}))
    assert templates.allows(data, HERE) == (True, size < 8_192)


def test_a_rule_with_absent_and_constant_fields():
    grants = Grants(RULES)
    fields = {"queueId": "1", "consumerGroup": "G", "i": "p"}
    grants.register(11, HERE, "ann", "s", (None, "G"))
    templates = learned(grants, fields, code=11)
    data = frame(signed(fields | {"i": "q"}, code=11))
    assert templates.allows(data, HERE) == (True, True)
    data = frame(signed(fields | {"topic": "T"}, code=11))
    assert templates.allows(data, HERE) == (False, False)
