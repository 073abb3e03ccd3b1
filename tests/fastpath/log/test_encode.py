import errno
import resource
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.bytes.hashing import java_hash
from rmq._fastpath.log.encode import RecordEncoder, record_size
from rmq._fastpath.log.mapped_file import MappedFile
from tests.model import hashing
from tests.model.record import ModelRecord

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
HOST = st.sampled_from([8, 20]).flatmap(lambda n: st.binary(min_size=n, max_size=n))

RECORDS = st.builds(
    ModelRecord,
    topic=st.binary(min_size=1, max_size=300),
    queue_id=I32,
    queue_offset=I64,
    physical_offset=I64,
    flag=I32,
    sys_flag=I32,
    born_ms=I64,
    born_host=HOST,
    store_ms=I64,
    store_host=HOST,
    reconsume_times=I32,
    prepared_offset=I64,
    body=st.binary(max_size=400),
    properties=st.binary(max_size=300),
)


def stage(encoder: RecordEncoder, record: ModelRecord) -> int:
    return encoder.stage(
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.flag,
        record.sys_flag,
        record.born_ms,
        record.born_host,
        record.store_ms,
        record.reconsume_times,
        record.prepared_offset,
        record.body,
        record.properties,
    )


@pytest.fixture
def file(tmp_path):
    mapped = MappedFile(str(tmp_path / "0"), 1 << 20, create=True)
    mapped.allocate(1 << 20)
    return mapped


@given(record=RECORDS)
@settings(max_examples=50)
def test_any_record_as_model(record):
    encoder = RecordEncoder(record.store_host)
    expected = record.encode()
    assert stage(encoder, record) == len(expected) == encoder.staged_size
    assert encoder.staged_bytes() == expected
    assert len(expected) == record_size(
        len(record.topic),
        len(record.body),
        len(record.properties),
        len(record.born_host),
        len(record.store_host),
    )


@pytest.mark.parametrize(("topic_size", "fixed"), [(127, 91), (128, 92), (32_767, 92)])
def test_topic_size_chooses_the_version(topic_size, fixed):
    record = ModelRecord(b"t" * topic_size, body=b"x")
    encoder = RecordEncoder(bytes(8))
    assert stage(encoder, record) == fixed + topic_size + 1
    assert encoder.staged_bytes() == record.encode()


@given(
    properties=st.lists(
        st.one_of(
            st.text(max_size=8),
            st.sampled_from(["TAGS\x01", "TAGS\x01\x01", "TAGS", "KEYS\x01TAGS\x01x"]),
            st.text(min_size=1, max_size=8).map("TAGS\x01{}".format),
        ),
        max_size=6,
    ).map("\x02".join)
)
@settings(max_examples=50)
def test_tags_code_of_any_properties_as_model(properties):
    encoder = RecordEncoder(bytes(8))
    stage(encoder, ModelRecord(b"t", properties=properties.encode()))
    assert encoder.tags_code == hashing.tags_code(properties)


def test_tags_code_is_of_the_last_record():
    encoder = RecordEncoder(bytes(8))
    stage(encoder, ModelRecord(b"t", properties="TAGS\x01grün".encode()))
    assert encoder.tags_code == java_hash("grün")
    stage(encoder, ModelRecord(b"t"))
    assert encoder.tags_code == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": b""}, "a topic of 0 bytes"),
        ({"topic": b"t" * 32_768}, "a topic of 32768 bytes"),
        ({"properties": bytes(32_768)}, "properties of 32768 bytes"),
        ({"born_host": bytes(7)}, "a born host of 7 bytes"),
        ({"body": bytes(160 * 1024 * 1024 + 1)}, "a body of 167772161 bytes"),
        ({"body": bytes(160 * 1024 * 1024)}, "a batch of 167772252 bytes exceeds"),
    ],
)
def test_limits_are_refused_and_what_is_staged_stays(changes, reason):
    encoder = RecordEncoder(bytes(8))
    good = ModelRecord(b"t", body=b"good")
    fields = {"topic": b"t", **changes}
    if reason.startswith("a batch"):
        with pytest.raises(ValueError, match=reason):
            stage(encoder, ModelRecord(**fields))
        return
    stage(encoder, good)
    with pytest.raises(ValueError, match=reason):
        stage(encoder, ModelRecord(**fields))
    assert encoder.staged_bytes() == good.encode()


def test_numbers_beyond_their_field_are_refused():
    encoder = RecordEncoder(bytes(8))
    for changes in ({"queue_id": 2**31}, {"sys_flag": 2**32}, {"born_ms": 2**63}):
        with pytest.raises(OverflowError):
            stage(encoder, ModelRecord(b"t", **changes))
    assert encoder.staged_size == 0


@pytest.mark.parametrize("size", [0, 4, 16, 21])
def test_store_host_of_another_size_is_refused(size):
    with pytest.raises(ValueError, match=f"not {size}"):
        RecordEncoder(bytes(size))


def test_staging_grows_and_keeps_its_bytes():
    encoder = RecordEncoder(bytes(8))
    records = [ModelRecord(b"t", body=bytes([i]) * 50_000) for i in range(20)]
    for record in records:
        stage(encoder, record)
    assert encoder.staged_bytes() == b"".join(record.encode() for record in records)


@pytest.mark.parametrize("use_pwrite", [False, True])
def test_commits_follow_each_other(file, use_pwrite):
    encoder = RecordEncoder(bytes(8))
    first, second = ModelRecord(b"a", body=b"1"), ModelRecord(b"b" * 200, body=b"2")
    stage(encoder, first)
    stage(encoder, second)
    encoder.commit(file, use_pwrite=use_pwrite)
    assert encoder.staged_size == 0
    encoder.stage_blank(123)
    encoder.commit(file, use_pwrite=use_pwrite)
    encoder.commit(file, use_pwrite=use_pwrite)
    expected = first.encode() + second.encode() + b"\0\0\0\x7b\xcb\xd4\x31\x94"
    assert file.write_position == len(expected)
    assert file.read(0, len(expected) + 8) == expected + bytes(8)


@pytest.mark.parametrize("use_pwrite", [False, True])
def test_commit_that_does_not_fit_publishes_nothing(file, use_pwrite):
    encoder = RecordEncoder(bytes(8))
    size = stage(encoder, ModelRecord(b"t"))
    file.write_position = file.size - size + 1
    with pytest.raises(IndexError):
        encoder.commit(file, use_pwrite=use_pwrite)
    assert file.write_position == file.size - size + 1
    assert encoder.staged_size == size
    assert file.read(file.size - size, size) == bytes(size)
    encoder.discard()
    assert encoder.staged_size == 0


def test_failed_pwrite_publishes_nothing_and_the_next_commit_writes_over_it(file):
    encoder = RecordEncoder(bytes(8))
    lost = ModelRecord(b"t", body=b"l" * 5_000)
    stage(encoder, lost)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            encoder.commit(file, use_pwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, file.path)
    assert file.write_position == 0
    assert encoder.staged_bytes() == lost.encode()
    encoder.discard()
    stage(encoder, ModelRecord(b"u"))
    encoder.commit(file, use_pwrite=True)
    assert file.read(0, file.write_position) == ModelRecord(b"u").encode()


def test_none_is_refused_where_a_file_or_bytes_are_needed():
    encoder = RecordEncoder(bytes(8))
    with pytest.raises(TypeError):
        encoder.commit(None, use_pwrite=False)
    with pytest.raises(TypeError):
        stage(encoder, ModelRecord(None))
