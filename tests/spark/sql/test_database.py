import os
import shutil

import pytest

from rmq.core.errors import CorruptLog, RmqError
from rmq_spark.segments.commit_log import LostData, find_segments, walk_records
from rmq_spark.sql import database as module
from rmq_spark.sql.database import SqlError
from rmq_spark.sql.dataset import ScanSettings
from rmq_spark.sql.origin import Stores
from tests.spark.sql.conftest import rows
from tests.spark.stores import START_MS, Sent, StoreWriter, orders

COUNT = 2_000


@pytest.fixture
def store(writer):
    writer.append(orders(COUNT))
    return writer


def test_messages_are_counted_grouped_and_found(store, ask):
    assert ask("SELECT count(*) FROM messages") == [(COUNT,)]
    topics = {
        name for name, _ in ask("SELECT topic, count(*) FROM messages GROUP BY 1")
    }
    assert topics == {f"orders_0{i}" for i in range(4)}
    found = ask("SELECT topic, body FROM messages WHERE keys = 'k1234'")
    assert [body for _, body in found] == [list(orders(1_235))[-1].body]
    late = ask(
        "SELECT count(*) FROM messages WHERE storeTimestamp >= "
        f"make_timestamptz({(START_MS + 20) * 1000})"
    )
    assert late == [(sum(s.store_ms >= START_MS + 20 for s in orders(COUNT)),)]


def test_each_topic_is_a_table_with_text(store, ask):
    (found,) = ask("SELECT text, properties['TAGS'] FROM orders_02 WHERE keys = 'k2'")
    assert found == (list(orders(3))[-1].body.decode(), "Tag2")
    assert len(ask("SELECT * FROM orders_02")) == COUNT / 4


def test_text_that_is_no_utf_8_is_null(writer, ask):
    writer.append([Sent(b"t", body=b"\xff"), Sent(b"t", body="Grüße".encode())])
    assert ask("SELECT text FROM t ORDER BY queueOffset") == [(None,), ("Grüße",)]


def test_topics_of_the_system_have_tables_but_are_not_in_messages(writer, ask, caplog):
    topics = [b"t", b"%DLQ%g", b"RMQ_SYS_TRANS_HALF_TOPIC"]
    writer.append(Sent(topic, body=b"x") for topic in topics)
    assert ask("SELECT topic FROM messages") == [("t",)]
    assert len(ask("SELECT topic FROM all_messages")) == 3
    assert ask('SELECT text FROM "%DLQ%g"') == [("x",)]
    assert caplog.text == ""
    assert ask("SELECT * FROM messages WHERE topic = '%DLQ%g'") == []
    assert "%DLQ%g is in table all_messages" in caplog.text


def test_tables_are_listed(store, opened):
    database = opened(a=store.root)
    names = [name for (name,) in rows(database, "SHOW TABLES")]
    assert {
        "messages",
        "all_messages",
        "queues",
        "segments",
        *(f"orders_0{i}" for i in range(4)),
    } == {*names}
    assert {*database.tables()} == {*names}


def test_a_topic_that_is_not_among_the_first_gets_its_table_when_named(
    store, opened, monkeypatch
):
    monkeypatch.setattr(module, "TOPICS_AT_START", 1)
    database = opened(a=store.root)
    statement = (
        "SELECT count(*) FROM orders_03 JOIN ORDERS_02 USING (queueId, queueOffset)"
    )
    assert rows(database, statement) == [(COUNT // 4,)]


def test_a_topic_that_came_later_has_a_table(store, ask):
    assert ask("SELECT count(*) FROM orders_00") == [(COUNT // 4,)]
    store.append([Sent(b"new", body=b"1")])
    assert ask("SELECT text FROM new") == [("1",)]


def test_a_topic_whose_queues_are_not_on_the_disk_yet_has_a_table(store, opened):
    shutil.rmtree(store.root / "consumequeue")
    database = opened(a=store.root)
    assert ("orders_01",) in rows(database, "SHOW TABLES")
    store.append([Sent(b"new", body=b"1")])
    shutil.rmtree(store.root / "consumequeue")
    assert rows(database, "SELECT text FROM new") == [("1",)]


def test_topics_that_differ_in_case_only_have_no_table(writer, ask):
    writer.append([Sent(b"Orders"), Sent(b"orders"), Sent(b"messages", body=b"m")])
    with pytest.raises(SqlError, match="Orders and orders differ in case only"):
        ask("SELECT * FROM orders")
    assert ask("SELECT count(*) FROM messages") == [(3,)]
    assert ask("SELECT body FROM messages WHERE topic = 'messages'") == [(b"m",)]


def test_names_with_quotes_are_names(writer, opened):
    writer.append([Sent(b"t")])
    odd = writer.root / "consumequeue" / "o'x\"y"
    odd.mkdir()
    assert rows(opened(a=writer.root), 'SELECT * FROM "o\'x""y"') == []


def test_queues_and_segments(store, ask):
    queues = ask("SELECT topic, queueId, minOffset, maxOffset, messages FROM queues")
    assert len(queues) == 16
    assert sum(row[4] for row in queues) == COUNT
    assert all(low == 0 and high == count for _, _, low, high, count in queues)
    found = ask("SELECT path, startOffset, endOffset FROM segments")
    assert [path for path, _, _ in found] == [s.path for s in find_segments(store.root)]
    assert found[-1][2] == store.end


def test_several_stores_are_told_apart_by_name(store, tmp_path, opened):
    other = StoreWriter(tmp_path / "other", 100_000)
    other.append(orders(100))
    database = opened(a=store.root, b=other.root)
    statement = "SELECT brokerName, count(*) FROM messages GROUP BY 1 ORDER BY 1"
    assert rows(database, statement) == [("a", COUNT), ("b", 100)]
    assert rows(database, "SELECT count(*) FROM orders_01 WHERE brokerName = 'b'") == [
        (25,)
    ]


def test_each_statement_sees_the_log_as_it_is_then(store, ask):
    assert ask("SELECT count(*) FROM messages") == [(COUNT,)]
    store.append(orders(10))
    assert ask("SELECT count(*) FROM messages") == [(COUNT + 10,)]
    store.delete_before(150_000)
    (left,) = ask("SELECT count(*) FROM messages")
    assert 0 < left[0] < COUNT


def test_one_statement_sees_one_log(store, opened):
    database = opened(a=store.root)
    result = database.run("SELECT 1 FROM messages UNION ALL SELECT 2 FROM messages")
    store.append(orders(500))
    assert sum(batch.num_rows for batch in result.batches) == 2 * COUNT


def test_statements_are_cut_and_those_without_rows_give_none(store, opened):
    database = opened(a=store.root)
    text = "CREATE TABLE x AS SELECT ';' AS a; -- remark;\nSELECT a FROM x"
    first, second = database.split_statements(text)
    database.run(first)
    assert rows(database, second) == [(";",)]
    assert database.run("SET VARIABLE a = 1") is None
    assert rows(database, "INSERT INTO x VALUES ('b') RETURNING a") == [("b",)]
    assert rows(database, "SELECT 7 AS Count") == [(7,)]
    pivot = "PIVOT messages ON queueId USING count(*) GROUP BY topic"
    assert len(rows(database, pivot)) == 4


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        (
            "SELECT * FROM messagez",
            "there is no table messagez; did you mean messages?",
        ),
        (
            "SELECT * FROM orders_99",
            "there is no table orders_99; did you mean orders_0",
        ),
        ("SELECT * FROM zzz", "there is no table zzz, and no topic"),
        ("SELECT topik FROM messages", 'Referenced column "topik" not found'),
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT CAST('a' AS INT)", "Could not convert string 'a' to INT32"),
    ],
)
def test_mistakes_are_sentences(store, ask, statement, sentence):
    with pytest.raises(SqlError) as raised:
        ask(statement)
    assert str(raised.value).startswith(sentence)
    assert "\n\n" not in str(raised.value)
    assert ask("SELECT 1") == [(1,)], "the database can still be used"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM read_json('{file}')",
        "SELECT * FROM read_parquet('{file}')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM sniff_csv('{file}')",
        "FROM '{file}'",
        "FROM '{file}.parquet'",
        "FROM 'https://127.0.0.1:1/x.parquet'",
        "FROM 's3://bucket/x.csv'",
        "COPY messages TO '{file}'",
        "COPY (SELECT 1) TO '{file}.parquet' (FORMAT parquet)",
        "CREATE TABLE x (a INT); COPY x FROM '{file}'",
        "ATTACH '{file}.db'",
        "EXPORT DATABASE '{file}.d'",
        "IMPORT DATABASE '{file}.d'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '{file}'",
        "SET enable_external_access = true",
        "SET memory_limit = '90GB'",
        "RESET threads",
        "SET temp_directory = '/tmp'",
        "PRAGMA enable_profiling = 'json'",
        "SET log_query_path = '{file}'",
        "CALL enable_logging(storage = 'file', storage_path = '{file}.log')",
        "CREATE PERSISTENT SECRET q (TYPE http, BEARER_TOKEN 'x')",
        "SELECT getenv('HOME')",
        "SELECT * FROM statement",
        "SELECT * FROM pa",
    ],
)
def test_sql_reaches_nothing_but_the_store(store, opened, tmp_path, statement):
    file = tmp_path / "secret.csv"
    file.write_text("secret")
    database = opened(a=store.root)
    before = sorted(tmp_path.iterdir())
    *before_it, last = database.split_statements(statement.format(file=file))
    for each in before_it:
        database.run(each)
    with pytest.raises(SqlError):
        rows(database, last)
    assert sorted(tmp_path.iterdir()) == before
    assert file.read_text() == "secret"


def test_a_refused_file_is_explained(store, ask):
    with pytest.raises(SqlError, match=r"^SQL has access to the tables only: Cannot"):
        ask("SELECT * FROM read_text('/etc/passwd')")


@pytest.mark.slow
def test_too_much_memory_is_a_sentence(store, ask):
    with pytest.raises(SqlError, match="more memory than --memory-limit allows"):
        ask("SELECT i FROM range(200000000) t(i) ORDER BY hash(i)")


def damage(store, place):
    """Make the record at or after `place` unreadable; its offset."""
    segment = find_segments(store.root)[0]
    bad = walk_records(segment, 0, place).position
    with open(segment.path, "r+b") as file:
        file.seek(bad + 4)
        file.write(b"\xff")
    return bad


def test_damage_in_the_middle_is_an_error_with_its_offset(store, ask):
    bad = damage(store, 50_000)
    with pytest.raises(CorruptLog, match="--skip-corrupt") as raised:
        ask("SELECT count(*) FROM messages")
    assert raised.value.offset == bad


def test_damage_is_no_secret_to_a_time_range_that_leaves_it_out(store, ask):
    damage(store, 50_000)
    with pytest.raises(CorruptLog):
        ask("SELECT count(*) FROM messages WHERE storeTimestamp > now()")


def test_damaged_records_are_passed_over_if_wanted(store, ask, caplog):
    damage(store, 50_000)
    counted = ask("SELECT count(*) FROM messages", skip_corrupt=True)
    assert counted == [(COUNT - 1,)]
    assert "bytes are skipped" in caplog.text


def test_a_body_that_changed_on_the_disk_is_an_error_if_it_is_read(store, ask):
    segment = find_segments(store.root)[0]
    with open(segment.path, "r+b") as file:
        file.seek(file.read().index(b'"sku"', 40_000))
        file.write(b"X")
    assert ask("SELECT count(*) FROM messages") == [(COUNT,)]
    with pytest.raises(CorruptLog, match="CRC of the body is wrong"):
        ask("SELECT max(body) FROM messages")


def test_a_gap_is_an_error_or_logged(store, ask, caplog):
    os.remove(find_segments(store.root)[1].path)
    with pytest.raises(LostData, match="--allow-loss"):
        ask("SELECT count(*) FROM messages")
    (left,) = ask("SELECT count(*) FROM messages", allow_loss=True)
    assert 0 < left[0] < COUNT
    assert "is missing" in caplog.text


def test_a_segment_that_goes_away_while_it_is_read_is_an_error(store, opened):
    database = opened(a=store.root, threads=1)
    result = database.run("SELECT topic FROM messages")
    for segment in find_segments(store.root)[1:]:
        os.remove(segment.path)
    with pytest.raises(LostData):
        list(result.batches)


def test_stores_that_are_missing_or_empty(writer, tmp_path, opened):
    assert rows(opened(a=writer.root), "SELECT count(*) FROM messages") == [(0,)]
    assert rows(opened(a=writer.root), "FROM queues") == []
    with pytest.raises(RmqError, match="there is no store at"):
        opened(a=tmp_path / "none")


def test_a_wrong_memory_limit_is_a_sentence(writer):
    origin = Stores([], ScanSettings())
    with pytest.raises(SqlError, match=r"^memory limit lots: "):
        module.Database(origin, "lots")
