"""Units of records from the timer's queue, the chain of a slot, and its records."""

from array import array

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.timer_units import add_units, due_records, walk_units
from rmq.store.timer.wheel import TimerWheel

TEXT = (
    b"UNIQ_KEY\x01FD000000000000000000000000000002\x02TIMER_DELIVER_MS\x01150000\x02"
    b"TIMER_OUT_MS\x01149000\x02REAL_TOPIC\x01bench\x02REAL_QID\x010\x02"
)
COUNT = 32
SLOT = 149


def prepared(folder):
    file = MappedFile(str(folder / "units"), 1 << 20, create=True)
    file.allocate(1 << 20)
    encoder = RecordEncoder(bytes(8))
    for number in range(COUNT):
        parts = (0, 0, 1, bytes(8), 2, 0, 0, bytes(128), TEXT)
        encoder.stage(b"rmq_sys_wheel_timer", 0, number, number * 400, *parts)
    return file, encoder.staged_bytes()


def bench_add_units(benchmark, tmp_path):
    """Thirty-two records of one slot."""
    file, records = prepared(tmp_path)
    wheel = TimerWheel()

    def run():
        file.write_position = 52
        wheel.slots.clear()
        wheel.add(SLOT, 0, recalls=False)
        return add_units(
            file, wheel.slots, records, 0,
            precision_ms=1_000, first_slot=0, now=100, end_slot=1_000,
        )  # fmt: skip

    assert benchmark(run)[1] == COUNT


def bench_walk_units(benchmark, tmp_path):
    """A chain of thirty-two units."""
    file, records = prepared(tmp_path)
    wheel = TimerWheel()
    file.write_position = 52
    wheel.add(SLOT, 0, recalls=False)
    add_units(
        file, wheel.slots, records, 0,
        precision_ms=1_000, first_slot=0, now=100, end_slot=1_000,
    )  # fmt: skip
    last = wheel.last_of(SLOT)
    found, _ = benchmark(lambda: walk_units([file], last, 0, COUNT))
    assert len(found) == COUNT * 8


def bench_due_records(benchmark, tmp_path):
    """The records of thirty-two units."""
    file, records = prepared(tmp_path)
    log = MappedFile(str(tmp_path / "log"), 1 << 20, create=True)
    log.allocate(1 << 20)
    log.append(records)
    queue, wheel = QueueTail("rmq_sys_wheel_timer", 0), TimerWheel()
    file.write_position = 52
    wheel.add(SLOT, 0, recalls=False)
    size = len(records) // COUNT
    encoder = RecordEncoder(bytes(8))
    for number in range(COUNT):
        parts = (0, 0, 1, bytes(8), 2, 0, 0, bytes(128), TEXT)
        encoder.stage(b"rmq_sys_wheel_timer", 0, number, number * size, *parts)
        queue.publish(number * size, size, 0)
    log.write(0, encoder.staged_bytes())
    add_units(
        file, wheel.slots, encoder.staged_bytes(), 0,
        precision_ms=1_000, first_slot=0, now=100, end_slot=1_000,
    )  # fmt: skip
    positions = array("q", range(52, 52 * (COUNT + 1), 52))

    def run():
        return due_records(
            [file], positions, LogReader([log]), queue, queue.entry_in_memory,
            min_offset=0, confirm_offset=1 << 20, now_ms=9,
        )  # fmt: skip

    assert len(benchmark(run)[0]) == COUNT
