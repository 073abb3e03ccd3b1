"""Repair keeps what it cuts, announces what it will do, and leaves a whole store."""

import json
import shutil

import pytest
from click.testing import CliRunner

from rmq._fastpath.log.decode import decode_record
from rmq.cli import main
from rmq.core.errors import StoreError
from rmq.protocol.message import Message
from rmq.tools.repair import plan_repair, repair
from rmq.tools.store_files import StoreFiles, data_size
from rmq.tools.verify import Verification
from tests.store.steps import result_of
from tests.tools.conftest import HOST

CUTS = {
    "store-torn-tail": 2_451_049,
    "store-torn-middle": 2_202_665,
    "store-torn-size": 2_449_035,
}


def snapshot(root):
    return {
        path.relative_to(root): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "timerwheel"
    }


def bodies(store, queue_id):
    return [
        decode_record(store.reads.get("Topic", queue_id, offset, 1).body).body
        for offset in range(store.reads.max_offset("Topic", queue_id))
    ]


@pytest.mark.parametrize("name", CUTS)
def test_torn_stores_end_where_java_ends_them(unpack, name):
    root = unpack(name)
    before = snapshot(root)
    plan = plan_repair(StoreFiles(root))
    assert plan.cut_offset == CUTS[name]
    assert plan.records_behind == {2_202_665: 233, 2_449_035: 2}.get(CUTS[name], 0)
    assert snapshot(root) == before
    lines = repair(StoreFiles(root), {})
    assert any(str(CUTS[name]) in line for line in lines)
    verdict = Verification(StoreFiles(root)).run()
    assert not verdict.damages
    assert verdict.end_offset == CUTS[name]
    aside = root / "cut" / f"{CUTS[name]:020d}"
    base = CUTS[name] // (1 << 20) * (1 << 20)
    was = before[(root / "commitlog" / f"{base:020d}").relative_to(root)]
    assert aside.read_bytes() == was[CUTS[name] - base :].rstrip(b"\0")


def test_a_damaged_queue_is_built_again(filled, open_store):
    sound = snapshot(filled)
    path = filled / "consumequeue" / "Topic" / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[1003] ^= 4
    path.write_bytes(data)
    lines = repair(StoreFiles(filled), {})
    assert any("is moved aside" in line for line in lines)
    [kept] = filled.glob("cut/*/consumequeue/Topic/1/" + path.name)
    assert kept.read_bytes() == data
    fresh = snapshot(filled)
    names = [name for name in sound if name.parts[0] in ("consumequeue", "commitlog")]
    assert names
    for name in names:
        assert fresh[name] == sound[name], name
    assert len(bodies(open_store(filled), 1)) == 100


def test_a_damaged_index_file_is_moved_aside(unpack):
    root = unpack("store-plain")
    names = sorted(path.name for path in (root / "index").iterdir())
    path = root / "index" / names[0]
    path.write_bytes(path.read_bytes()[:1000])
    lines = repair(StoreFiles(root), {})
    assert any("indexed again" in line for line in lines)
    assert sorted(p.name for p in root.glob("cut/*/index/*")) == names
    assert not Verification(StoreFiles(root)).run().damages


def test_index_files_that_are_built_again_have_the_size_of_the_others(unpack):
    root = unpack("store-plain")
    paths = sorted((root / "index").iterdir())
    sizes = {path.stat().st_size for path in paths}
    paths[1].write_bytes(paths[1].read_bytes()[:40] + b"\1" * (min(sizes) - 40))
    lines = repair(StoreFiles(root), {})
    assert {path.stat().st_size for path in (root / "index").iterdir()} == sizes
    assert not any("maxHashSlotNum" in line for line in lines)
    assert not Verification(StoreFiles(root)).run().damages


class Recorded:
    """Records the parts of a work with their totals and what was done."""

    def __init__(self):
        self.parts = []

    def begin(self, verb, total):
        self.parts.append([verb, total, 0, 0])

    def add(self, count, messages=None):
        self.parts[-1][2] += count
        self.parts[-1][3] += messages or 0


def test_each_part_of_a_repair_moves_to_its_end(unpack):
    root = unpack("store-torn-middle")
    shown = Recorded()
    repair(StoreFiles(root), {}, restore=True, progress=shown)
    assert [part[0] for part in shown.parts] == [
        "checked", "recovered", "restored", "indexed",
    ]  # fmt: skip
    for verb, total, done, messages in shown.parts:
        # a check ends at the damage
        assert done >= (0.7 if verb == "checked" else 0.9) * total, verb
        if verb in {"checked", "restored"}:
            assert messages > 0, verb


def test_the_total_is_without_the_zeros_of_a_prepared_file(tmp_path):
    path = tmp_path / "00000000000000000000"
    path.write_bytes(b"x" * 10_000 + bytes(1 << 20))
    assert data_size([path]) == 12_288
    assert data_size([]) == 0
    empty = tmp_path / "00000000000000000001"
    empty.write_bytes(bytes(8_192))
    assert data_size([path, empty]) == path.stat().st_size


def test_nothing_to_do_changes_nothing(filled):
    before = snapshot(filled)
    assert repair(StoreFiles(filled), {}) == ["nothing to repair"]
    assert snapshot(filled) == before


def test_a_store_in_use_is_refused(open_store, filled):
    open_store(filled)
    with pytest.raises(StoreError, match="open already"):
        repair(StoreFiles(filled), {})


def test_cut_records_can_be_stored_again(filled, open_store):
    store = open_store(filled)
    expected = [bodies(store, queue_id) for queue_id in range(3)]
    log_file = store.directory.commit_log / f"{0:020d}"
    store.close()
    data = bytearray(log_file.read_bytes())
    data[100] ^= 1
    log_file.write_bytes(data)
    lines = repair(StoreFiles(filled), {}, restore=True)
    assert sum("stored again as new" in line for line in lines) > 1
    store = open_store(filled)
    lost = [body for queue in expected for body in queue]
    found = [body for n in range(3) for body in bodies(store, n)]
    assert len(found) == len(lost) - 1
    assert set(lost) - set(found) == {expected[0][0]}
    assert not list(filled.glob("cut/" + "?" * 20))
    store.close()
    assert (
        repair(StoreFiles(filled), {}, restore=True)[-1]
        == "there are no truncated parts"
    )


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["store", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_commands_on_a_damaged_store(unpack):
    root = unpack("store-torn-middle")
    out = run("verify", root, code=1)
    assert "damaged: " in out
    assert "at offset 2202665: bad crc" in out
    assert "233 complete records after it" in run("repair", "--dry-run", root)
    run("repair", root)
    assert "no damaged places" in run("verify", root)
    assert f"saved by recovery: {root / 'cut'}" in run("inspect", root)


def test_commands_with_json(unpack):
    root = unpack("store-torn-middle")
    verdict = json.loads(run("verify", "--json", root, code=1))
    assert verdict["damages"][0].endswith("at offset 2202665: bad crc")
    assert verdict["records"] > 2_000
    plan = json.loads(run("repair", "--json", "--dry-run", root))
    assert plan["isPlan"] is True
    assert "233 complete records after it" in " ".join(plan["steps"])
    before = snapshot(root)
    done = json.loads(run("repair", "--json", root))
    assert (done["isPlan"], bool(done["steps"])) == (False, True)
    assert snapshot(root) != before
    assert json.loads(run("verify", "--json", root))["damages"] == []


def test_a_person_is_asked_before_anything_is_cut(unpack, monkeypatch):
    root = unpack("store-torn-middle")
    before = snapshot(root)
    monkeypatch.setattr("rmq.cli.store.command.is_interactive", lambda: True)

    def answer(text, *options):
        words = ["store", "repair", *options, str(root)]
        return CliRunner().invoke(main, words, input=text)

    refused = answer("n\n")
    assert refused.exit_code == 1
    assert "233 complete records after it" in refused.stderr
    assert snapshot(root) == before
    assert answer("", "--yes").exit_code == 0
    assert snapshot(root) != before


def test_inspect_names_what_is_there(unpack):
    out = run("inspect", unpack("store-features"))
    assert "log: 1 files of 1048576 bytes, from 0 to about 57370" in out
    assert "FSql: 2 queues, 20 messages" in out
    assert "FBatchCq: 2 queues, 12 messages" in out
    assert "FCompact: 1 queues, 6 messages" in out
    assert "not served" not in out
    assert "later version" not in out
    shown = json.loads(run("inspect", "--json", unpack("store-plain")))
    assert shown["log_files"] == 3
    assert sum(topic["messages"] for topic in shown["topics"].values()) == 3010
    assert [index["entries"] for index in shown["index_files"]][:4] == [1999] * 4


def test_a_folder_that_is_no_store(tmp_path):
    assert "is no store" in run("verify", tmp_path, code=1)


def test_repair_without_a_log_is_refused(filled):
    shutil.rmtree(filled / "commitlog")
    assert "nothing to repair" in run("repair", filled, code=1)


def test_the_index_is_built_again_from_its_first_damaged_file(open_store):
    """Also the sound files behind it, as the index is built in order."""
    small = {"index_slots": 25, "index_entries": 100}
    store = open_store(**small)
    for n in range(300):
        properties = {"KEYS": f"k{n}"}
        store.writes.put(
            Message("Topic", 0, b"x", 0, 0, 1, HOST, properties=properties)
        )
    store.close()
    root = store.directory.root
    paths = sorted((root / "index").iterdir())
    assert len(paths) == 4
    data = bytearray(paths[1].read_bytes())
    data[40 + 25 * 4 + 5 * 20 + 11] ^= 1
    paths[1].write_bytes(data)
    plan = plan_repair(StoreFiles(root))
    assert plan.moved == paths[1:]
    lines = repair(StoreFiles(root), {"maxHashSlotNum": "25", "maxIndexNum": "100"})
    assert "messages of moved index files are indexed again" in lines
    assert not Verification(StoreFiles(root)).run().damages
    store = open_store(**small)
    assert not store.index.lag_bytes
    assert len(store.index.files) == 4
    for n in range(300):
        [offset] = result_of(store.reads.query("Topic", f"k{n}", 2, 0, 1 << 62))
        assert decode_record(store.reads.record_at(offset)).queue_offset == n


def test_bytes_that_no_broker_has_are_taken_as_they_are(filled):
    """No checksum of the format covers the store time; the digest did."""
    path = min((filled / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(bytes(data))
    lines = repair(StoreFiles(filled), {"mappedFileSizeConsumeQueue": "2000"})
    assert any("differ from the written bytes" in line for line in lines)
    assert not Verification(StoreFiles(filled)).run().damages
    assert Verification(StoreFiles(filled)).run().record_count == 300
