"""Every recorded frame decodes to what was recorded and encodes to the same bytes."""

import msgspec

from rmq.protocol import fastjson
from rmq.protocol.codes import LanguageCode, SerializeType
from rmq.protocol.frames import FrameDecoder, decode, encode

JSON_DEFAULTS = {"flag": 0, "opaque": 0, "version": 0}


def header_of(raw):
    return raw[8 : 8 + int.from_bytes(raw[5:8])]


def language_name(language):
    return LanguageCode(language).name if isinstance(language, int) else language


def text_of(ext_fields):
    return {name: fastjson.java_text(value) for name, value in ext_fields.items()}


def has_javas_form(header):
    """Whether this is how Java, and we, would write the same command."""
    return (
        list(header) == sorted(header)
        and "serializeTypeCurrentRPC" in header
        and header.get("extFields") != {}
    )


def test_frames_decode(recording):
    assert recording
    for frame in recording:
        command = decode(frame.raw)
        header = JSON_DEFAULTS | frame.header
        assert command.code == header["code"]
        assert command.flag == header["flag"]
        assert command.opaque == header["opaque"]
        assert command.version == header["version"]
        assert command.remark == header.get("remark")
        assert language_name(command.language) == header.get("language")
        assert command.ext_fields == text_of(header.get("extFields", {}))
        assert len(command.body) == frame.body_size
        assert command.is_response == (frame.kind == "response")
        assert command.is_oneway == (frame.kind == "oneway")
        expected = SerializeType.JSON if frame.is_json else SerializeType.ROCKETMQ
        assert command.serialize_type is expected


def test_headers_encode_compactly_to_the_same_bytes(recording):
    for frame in recording:
        if frame.is_json:
            assert msgspec.json.encode(frame.header) == header_of(frame.raw).rstrip()


def test_frames_encode_to_the_same_bytes(recording):
    for frame in recording:
        if not frame.is_json or has_javas_form(frame.header):
            assert encode(decode(frame.raw)) == frame.raw


def test_any_frame_survives_a_round_trip(recording):
    for frame in recording:
        command = decode(frame.raw)
        assert decode(encode(command)) == command


def test_a_recording_as_one_stream(recording):
    stream = b"".join(frame.raw for frame in recording)
    decoder = FrameDecoder()
    commands = []
    for start in range(0, len(stream), 1000):
        commands += decoder.feed(stream[start : start + 1000])
    assert commands == [decode(frame.raw) for frame in recording]
    assert len(decoder._buffer) == 0
