"""What a master does with replicas, good ones and others; the peers are by hand."""

from contextlib import suppress

import pytest
import trio
import trio.testing

from rmq._fastpath.log.watermark import Watermark
from rmq.cluster import log_server, session
from rmq.cluster.session import ReplicaSession
from rmq.core.errors import ConnectFailed
from tests.cluster.conftest import (
    FILE_SIZE,
    bytes_of,
    count_in_sync,
    peer_of,
    put,
    serving,
)
from tests.waiting import until


def acknowledged(primary):
    return [each.acknowledged_offset for each in primary.session_statuses()]


async def nobody():
    return []


async def test_a_replica_gets_the_log_from_its_offset_on(store):
    first = put(store, 5)
    end = put(store, 800)
    async with serving(store) as (primary, port), peer_of(port) as peer:
        await peer.report(first)
        start, data = await peer.log_up_to(end)
        assert start == first
        assert data == bytes_of(store, first)
        await peer.report(end)
        await until(lambda: primary.session_statuses()[0].acknowledged_offset == end)
        [status] = primary.session_statuses()
        assert (status.next_offset, status.lag_bytes, status.is_in_sync) == (
            end,
            0,
            True,
        )


async def test_nothing_is_sent_before_the_first_report(store):
    put(store, 5)
    async with serving(store) as (_, port), peer_of(port) as peer:
        with trio.move_on_after(0.3) as scope:
            await peer.frame()
        assert scope.cancelled_caught


async def test_frames_end_with_files_and_are_small_at_first(store):
    end = put(store, 20)
    keys = {"ha_first_frame_size": 1_000, "ha_frame_size": 5_000}
    async with serving(store, **keys) as (primary, port), peer_of(port) as peer:
        await peer.report(1)
        assert len((await peer.frame())[1]) == 1_000
        await peer.log_up_to(end)
        await peer.report(end)
        await until(lambda: count_in_sync(primary.acks, end, 1) == 1)
        at, end = end, put(store, 800)
        primary.push()
        sizes = []
        while at < end:
            offset, body = await peer.frame()
            assert offset == at
            assert offset // FILE_SIZE == (offset + len(body) - 1) // FILE_SIZE
            sizes.append(len(body))
            at += len(body)
        assert max(sizes) == 5_000


@pytest.mark.slow
async def test_flow_control_counts_all_bytes(store):
    end = put(store, 800)
    limit = end // 4
    keys = {"ha_flow_control": True, "ha_bytes_per_second": limit}
    async with serving(store, **keys) as (primary, port), peer_of(port) as peer:
        began = trio.current_time()
        await peer.report(1)
        await peer.log_up_to(end)
        assert 2 < trio.current_time() - began < 6
        assert 0 < primary.session_statuses()[0].bytes_per_second <= limit + 1_000


async def test_an_empty_replica_of_java_gets_the_newest_file(store):
    end = put(store, 800)
    newest = end - end % FILE_SIZE
    async with serving(store) as (_, port), peer_of(port) as peer:
        await peer.report(0)
        assert await peer.log_up_to(end) == (newest, bytes_of(store, newest))


async def test_what_is_stored_later_leaves_with_the_next_push(store):
    end = put(store, 5)
    async with serving(store) as (primary, port), peer_of(port) as peer:
        await peer.report(end)
        assert await peer.frame() == (end, b"")  # a heartbeat: all was sent
        for _ in range(20):
            start, end = end, put(store, 3)
            primary.push()
            assert await peer.log_up_to(end) == (start, bytes_of(store, start))


@pytest.mark.parametrize("is_waited_for", [False, True])
async def test_a_burst_goes_in_portions_if_nobody_waits(
    store, monkeypatch, is_waited_for
):
    monkeypatch.setattr("rmq.cluster.log_server.PORTION_S", 0.1)
    end, replicated = put(store, 5), Watermark() if is_waited_for else None
    async with (
        serving(store, replicated=replicated) as (primary, port),
        peer_of(port) as peer,
    ):
        await peer.report(end)
        assert await peer.frame() == (end, b"")
        await trio.testing.wait_all_tasks_blocked()
        start, frames = end, 0
        for _ in range(20):
            end = put(store, 1)
            primary.push()
        while start < end:
            start += len((await peer.frame())[1])
            frames += 1
    assert (frames == 20) == is_waited_for, frames
    assert is_waited_for or frames < 10


async def test_a_silent_pair_says_that_it_is_there(store):
    end = put(store, 5)
    keys = {"ha_heartbeat_interval_ms": 20}
    async with serving(store, **keys) as (_, port), peer_of(port) as peer:
        await peer.report(end)
        for _ in range(3):
            assert await peer.frame() == (end, b"")


@pytest.mark.slow
async def test_a_peer_that_does_not_read_keeps_nobody_waiting(store):
    async with serving(store) as (primary, port), peer_of(port) as deaf:
        await deaf.report(1)
        await until(primary.session_statuses)
        for seed in range(40):
            end = put(store, 8, size=60_000, seed=seed)
            primary.push()
        async with peer_of(port) as peer:
            await peer.report(end)
            assert (await peer.frame())[0] == end
        start, data = await deaf.log_up_to(end)
        assert bytes_of(store, start) == data


# -- peers that are refused


async def refused(store, *reports, **keys):
    """Send reports; return the sentence with which the peer was closed."""
    async with serving(store, **keys) as (primary, port), peer_of(port) as peer:
        for report in reports:
            await peer.report(report)
            if report != reports[-1]:
                await until(lambda r=report: acknowledged(primary) == [r])
        assert await peer.is_closed()
        await until(lambda: not primary.session_statuses())
        assert primary.acks.replicated_offset() == 0
        [sentence] = primary.recent_refusals
        return sentence


async def test_a_replica_that_is_ahead_is_refused(store):
    end = put(store, 5)
    sentence = await refused(store, end + 1)
    assert (
        f"the slave's log ends at {end + 1}, the log of this broker at {end}"
        in sentence
    )


async def test_a_replica_that_reports_what_it_was_not_sent_is_refused(store):
    put(store, 5)
    sentence = await refused(store, 1, 1 << 40)
    assert (
        f"the slave reported {1 << 40}, but this broker sent the log only up to"
        in sentence
    )


async def test_a_replica_whose_report_sinks_is_refused(store):
    end = put(store, 5)
    assert f"it reported offset {end - 1} after {end}" in await refused(
        store, end, end - 1
    )


async def test_a_negative_report_is_refused(store):
    assert "the offset -1" in await refused(store, -1)


async def test_a_replica_older_than_the_oldest_file_is_refused(store):
    put(store, 800)
    file = store.log.files.files.pop(0)
    file.unlink()
    file.close()
    sentence = await refused(store, 100)
    assert f"the oldest here is {FILE_SIZE}" in sentence


async def test_a_silent_peer_is_closed(store):
    keys = {"ha_silence_limit_ms": 50}
    async with serving(store, **keys) as (primary, port), peer_of(port) as peer:
        assert await peer.is_closed()
        await until(lambda: primary.recent_refusals)
        assert "silent for 0.05 s" in primary.recent_refusals[0]


async def test_a_dribbling_peer_is_no_replica(store):
    put(store, 5)
    async with serving(store) as (primary, port), peer_of(port) as peer:
        for byte in (1 << 50).to_bytes(8, "big")[:7]:
            await peer.stream.send_all(bytes([byte]))
            await trio.sleep(0.002)
        assert count_in_sync(primary.acks, store.log.end_offset, 1 << 40) == 0
        await peer.stream.send_all(b"\0")
        assert await peer.is_closed()


async def test_garbage_of_4_mib_is_refused_by_its_first_bytes(store):
    put(store, 5)
    async with serving(store) as (primary, port), peer_of(port) as peer:
        with suppress(trio.BrokenResourceError):
            await peer.stream.send_all(b"\xff" * (4 << 20))
        assert await peer.is_closed()
        await until(lambda: not primary.session_statuses())
        assert "the slave reported the offset -1" in primary.recent_refusals[0]


async def test_a_stranger_gets_no_byte(store):
    put(store, 5)
    async with serving(store, nobody) as (primary, port), peer_of(port) as peer:
        assert await peer.is_closed()
        assert (
            "no other broker of this group is registered" in primary.recent_refusals[0]
        )
        assert not primary.session_statuses()


async def test_a_slave_of_java_follows_before_it_registers(store, monkeypatch):
    """It has asked for the HA address; only acting masters make it wait for the log."""
    monkeypatch.setattr(log_server, "EXPECTED_S", 0.3)
    end = put(store, 5)
    async with serving(store, nobody, acting_master_enable=True) as (primary, port):
        async with peer_of(port) as peer:
            assert await peer.is_closed()
        primary.expect_slave("127.0.0.1")
        async with peer_of(port) as peer:
            await peer.report(end)
            assert await peer.frame() == (end, b"")
            async with peer_of(port) as newer:
                await newer.report(end)
                assert await peer.is_closed(), "one connection for each host"
        await trio.sleep(0.4)
        async with peer_of(port) as peer:
            assert await peer.is_closed()


async def test_expected_slaves_are_limited(store, monkeypatch):
    monkeypatch.setattr(log_server, "EXPECTED_S", 0.3)
    put(store, 5)
    async with serving(store, nobody, acting_master_enable=True) as (primary, port):
        for number in range(log_server.MAX_SESSIONS):
            primary.expect_slave(f"10.0.0.{number}")
        primary.expect_slave("127.0.0.1")
        async with peer_of(port) as peer:
            assert await peer.is_closed()
        await trio.sleep(0.4)
        primary.expect_slave("127.0.0.1")
        async with peer_of(port) as peer:
            await peer.report(0)
            await peer.frame()


async def test_without_acting_masters_a_slave_registers_first(store):
    async with serving(store, nobody) as (primary, port):
        primary.expect_slave("127.0.0.1")
        async with peer_of(port) as peer:
            assert await peer.is_closed()


async def test_nobody_follows_while_nobody_knows_the_group(store):
    async def unknown():
        raise ConnectFailed("no name server answers")

    async with serving(store, unknown) as (_, port), peer_of(port) as peer:
        assert await peer.is_closed()


async def test_what_the_configuration_names_may_follow(store):
    end = put(store, 5)
    keys = {"ha_peers": "10.0.0.0/8, 127.0.0.0/8"}
    async with serving(store, nobody, **keys) as (_, port), peer_of(port) as peer:
        await peer.report(end)
        assert await peer.frame() == (end, b"")


async def test_a_replica_that_came_back_replaces_its_old_connection(store):
    async def one():
        return ["127.0.0.1:10911"]

    end = put(store, 5)
    async with serving(store, one) as (primary, port), peer_of(port) as old:
        await old.report(end)
        await until(primary.session_statuses)
        async with peer_of(port) as new:
            assert await old.is_closed()
            await new.report(end)
            await until(lambda: count_in_sync(primary.acks, end, 1) == 1)
            assert len(primary.session_statuses()) == 1


# -- acknowledgements


async def test_enough_replicas_move_the_watermark(store):
    end, replicated = put(store, 5), Watermark()
    async with (
        serving(store, needed=2, replicated=replicated) as (primary, port),
        peer_of(port) as one,
        peer_of(port) as other,
    ):
        for _ in range(2):  # the first report only asks where to begin
            await one.report(end)
        await until(lambda: count_in_sync(primary.acks, end, 1) == 1)
        assert replicated.value == 0
        for _ in range(2):
            await other.report(1)
        await until(lambda: replicated.value == 1)
        await other.log_up_to(end)
        await other.report(end)
        await until(lambda: replicated.value == end)
    assert replicated.value == end  # what enough had, enough had


async def test_it_is_known_whether_there_are_replicas(store):
    seen = []

    def record(is_followed, _portion_s):
        seen.append(is_followed)

    async with serving(store, on_sessions_changed=record) as (primary, port):
        async with peer_of(port) as peer:
            await peer.report(1)
            await until(primary.session_statuses)
        await until(lambda: not primary.session_statuses())
    assert seen == [True, False]


async def test_without_a_thread_for_the_disk_a_replica_leaves_and_the_master_goes_on(
    store, monkeypatch
):
    end = put(store, 50)

    def start(*_, **__):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(trio.to_thread, "run_sync", start)
        patch.setattr(ReplicaSession, "_is_hot", lambda *_: False)
        patch.setattr(session, "PUSH_LIMIT", 1)
        async with serving(store, ha_first_frame_size=1_000) as (primary, port):
            async with peer_of(port) as peer:
                await peer.report(1)
                while await peer.frame():
                    pass
            patch.undo()
            async with peer_of(port) as peer:
                await peer.report(1)
                await peer.log_up_to(end)
        assert not primary.session_statuses()
