"""The claim: a start knows a torn end from damage, and then cuts nothing."""

import zlib

import pytest

from rmq._fastpath.log.claim import Claim
from rmq._fastpath.log.watermark import Watermark
from rmq.store import claim as claim_module
from rmq.store.damage import LogDamaged
from rmq.store.message_store import MessageStore
from rmq.testing import ManualClock
from tests.store.conftest import HOST
from tests.store.test_recovery import all_bodies, crash, damage, fill

BOOT, OTHER_BOOT = bytes(range(16)), bytes(16)
SLOT = 76


@pytest.fixture
def page():
    return bytearray(4096)


@pytest.fixture
def other_boot(tmp_path, monkeypatch):
    """Let the machine start again."""

    def boot():
        source = tmp_path / "boot_id"
        source.write_text("another boot")
        monkeypatch.setattr(claim_module.read_boot_id, "__defaults__", (source,))

    return boot


def guarded(store):
    """Open the store again as a member of a group does."""
    return MessageStore.open(
        store.config, clock=ManualClock(), store_host=HOST, keeps_damage=True
    )


def begun(page, end=0):
    made = Claim(page, BOOT)
    made.begin(0, end, Watermark(end))
    return made


def places(claim):
    return claim.written_offset, claim.durable_offset, claim.confirmed_offset


def test_a_claim_is_read_again(page):
    durable, confirmed = Watermark(), Watermark()
    first = Claim(page, BOOT)
    first.begin(100, 500, durable)
    first.confirm_by(confirmed)
    durable.advance(700)
    confirmed.advance(650)
    is_new = [first.update(900), first.update(900)]
    assert is_new == [True, False]
    again = Claim(page, BOOT)
    assert (again.start_offset, *places(again)) == (100, 900, 700, 650)
    assert again.is_same_boot
    assert not Claim(page, OTHER_BOOT).is_same_boot


def test_positions_are_not_ahead_of_the_log(page):
    claim, durable = Claim(page, BOOT), Watermark()
    claim.begin(0, 0, durable)
    claim.confirm_by(durable)
    durable.advance(900)
    claim.update(400)
    assert places(claim) == (400, 400, 400)


def test_confirm_stores_only_what_the_group_has_confirmed(page):
    claim, confirmed = begun(page, 100), Watermark()
    claim.update(900)
    number = claim.store_number
    claim.confirm()
    claim.confirm_by(confirmed)
    claim.confirm()
    assert claim.store_number == number
    confirmed.advance(700)
    claim.confirm()
    confirmed.advance(1_000)
    claim.confirm()
    claim.confirm()
    assert claim.store_number == number + 2
    assert places(Claim(page, BOOT)) == (900, 100, 900)


def test_it_is_lowered_only_by_a_cut(page):
    claim = begun(page, 800)
    claim.lower(300)
    assert places(Claim(page, BOOT)) == (300, 300, 0)


@pytest.mark.parametrize("at", range(SLOT))
def test_each_flipped_bit_leaves_the_store_before(page, at):
    claim = begun(page)
    for end in (100, 200, 300):
        claim.update(end)
    slot = 2048 if claim.store_number % 2 else 0
    for bit in range(8):
        rotten = bytearray(page)
        rotten[slot + at] ^= 1 << bit
        assert Claim(rotten, BOOT).written_offset == 200


def test_a_torn_page_leaves_one_slot(page):
    claim = begun(page)
    claim.update(100)
    before = bytes(page)
    claim.update(200)
    for half in (0, 2048):
        torn = bytearray(page)
        torn[half : half + 2048] = before[half : half + 2048]
        assert Claim(torn, BOOT).written_offset in (100, 200)


def test_it_names_the_last_two_checkpoints(page):
    claim = begun(page)
    for number in (1, 2, 3):
        claim.add_checkpoint(number)
    assert Claim(page, BOOT).checkpoint_crcs == (3, 2)


def test_a_page_of_another_size_is_refused():
    with pytest.raises(ValueError, match="a page of 100"):
        Claim(bytearray(100), BOOT)


# -- a store with it


def test_a_damaged_record_is_refused_and_nothing_is_cut(open_store, make_message):
    store = open_store()
    sent, results = fill(store, make_message)
    place = results[90].physical_offset
    end = results[-1].end_offset
    crash(store)
    damage(store, place + 500, b"\xff\xfe\xfd\xfc")
    log = sorted(store.directory.commit_log.iterdir())
    before = [file.read_bytes() for file in log]
    for _ in range(2):
        with pytest.raises(LogDamaged) as refused:
            guarded(store)
        assert f"a hole from {place} to {results[91].physical_offset}" in str(
            refused.value
        )
        assert f"complete up to {end}" in str(refused.value)
    assert [file.read_bytes() for file in log] == before
    damage(store, place + 500, sent[90][:4])
    again = guarded(store)
    assert all_bodies(again) == sent
    again.close()


def test_a_missing_end_is_refused(open_store, make_message):
    store = open_store()
    _, results = fill(store, make_message)
    crash(store)
    last = max(store.directory.commit_log.iterdir())
    last.unlink()
    with pytest.raises(LogDamaged, match=f"it ends at {int(last.name)}"):
        guarded(store)
    assert results[-1].physical_offset >= int(last.name)


def test_a_missing_end_is_refused_after_a_clean_stop(open_store, make_message):
    store = open_store()
    fill(store, make_message)
    store.close()
    max(store.directory.commit_log.iterdir()).unlink()
    with pytest.raises(LogDamaged, match="the log is short"):
        guarded(store)


def test_without_a_group_it_is_cut_and_told(open_store, make_message):
    store = open_store()
    sent, results = fill(store, make_message)
    place = results[90].physical_offset
    crash(store)
    damage(store, place + 500, b"\xff\xfe\xfd\xfc")
    again = open_store()
    assert all_bodies(again) == sent[:90]
    assert any("it is truncated there" in line for line in again.recovery.lines())
    [loss] = again.recovery.losses
    assert "it is truncated there" in loss
    assert "queue entries lost their messages" in loss
    crash(again)
    guarded(store).close()


def test_what_was_not_durable_may_go_with_the_power(
    open_store, make_message, other_boot
):
    store = open_store()
    sent, results = fill(store, make_message, 50)
    store.flush_queues(thorough=True)
    fill(store, make_message, 30)
    durable = results[-1].end_offset
    files = [store.directory.root / name for name in ("claim", "checkpoint")]
    before = [file.read_bytes() for file in files]
    crash(store)
    for file, data in zip(files, before, strict=True):
        file.write_bytes(data)
    damage(store, durable + 4, bytes(4))
    other_boot()
    again = guarded(store)
    assert all_bodies(again) == sent
    again.close()


def test_what_was_durable_may_not_go_with_the_power(
    open_store, make_message, other_boot
):
    store = open_store()
    _, results = fill(store, make_message, 50)
    store.flush_queues(thorough=True)
    crash(store)
    damage(store, results[40].physical_offset + 4, bytes(4))
    other_boot()
    with pytest.raises(LogDamaged):
        guarded(store)


def test_a_checkpoint_of_another_program_ends_the_claim(open_store, make_message):
    store = open_store()
    sent, results = fill(store, make_message)
    crash(store)
    checkpoint = store.directory.checkpoint
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"\1")
    damage(store, results[90].physical_offset + 4, bytes(4))
    again = guarded(store)
    assert all_bodies(again) == sent[:90]
    again.close()


@pytest.mark.parametrize("size", [0, 100, 4095, 5000])
def test_a_claim_of_another_size_is_made_again(open_store, make_message, size):
    store = open_store()
    sent, _ = fill(store, make_message, 20)
    crash(store)
    (store.directory.root / "claim").write_bytes(bytes(size))
    again = guarded(store)
    assert all_bodies(again) == sent
    again.close()
    page = (store.directory.root / "claim").read_bytes()
    claim = Claim(bytearray(page), BOOT)
    found = zlib.crc32(store.directory.checkpoint.read_bytes())
    assert claim.written_offset == again.recovery.end_offset
    assert claim.checkpoint_crcs[0] == found
