import gc
import os
import resource
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.log.block_digests import BlockDigests
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.watermark import Watermark
from tests.pages import dirty_bytes, drop_pages

SIZE = 64 * 1024


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "00000000000000000000")


@pytest.fixture
def file(path):
    mapped = MappedFile(path, SIZE, base_offset=1 << 40, create=True)
    mapped.allocate(SIZE)
    yield mapped
    gc.collect()
    mapped.close()


@contextmanager
def file_size_limit(size: int):
    """The kernel refuses to write beyond `size`: a real short write, a real error."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)


def content(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def test_created_file_has_its_exact_length_and_is_zero(path):
    file = MappedFile(path, SIZE, base_offset=SIZE * 3, create=True)
    assert content(path) == bytes(SIZE)
    assert (file.path, file.size, file.base_offset) == (path, SIZE, SIZE * 3)
    assert file.write_position == file.flushed_position == file.allocated == 0
    assert file.writable
    assert os.fstat(file.fd).st_size == SIZE


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("length", [1, SIZE - 1, SIZE + 1])
def test_another_length_is_refused_and_the_file_left_alone(path, length, create):
    with open(path, "wb") as stream:
        stream.write(b"x" * length)
    with pytest.raises(ValueError, match=f"has {length} bytes instead of {SIZE}"):
        MappedFile(path, SIZE, create=create)
    assert content(path) == b"x" * length


def test_create_completes_a_file_whose_maker_was_killed_before_its_length(path):
    open(path, "wb").close()
    with pytest.raises(ValueError, match="has 0 bytes"):
        MappedFile(path, SIZE)
    assert MappedFile(path, SIZE, create=True).size == os.path.getsize(path)


def test_create_keeps_what_an_existing_file_holds(path):
    with open(path, "wb") as stream:
        stream.write(b"y" * SIZE)
    assert MappedFile(path, SIZE, create=True).read(0, SIZE) == b"y" * SIZE


def test_missing_file_and_bad_size(path):
    with pytest.raises(FileNotFoundError):
        MappedFile(path, SIZE)
    for size in (0, -1):
        with pytest.raises(ValueError, match="positive size"):
            MappedFile(path, size, create=True)
    assert not os.path.exists(path)


def test_failed_construction_closes_no_descriptor(path):
    before = os.fstat(0), len(os.listdir("/proc/self/fd"))
    for arguments in ((None, SIZE), (path, "large"), (path, SIZE), (path, 0)):
        with pytest.raises((TypeError, FileNotFoundError, ValueError)):
            MappedFile(*arguments)
    open(path, "wb").close()
    with pytest.raises(ValueError, match="instead of"):
        MappedFile(path, SIZE)
    assert (os.fstat(0), len(os.listdir("/proc/self/fd"))) == before


def test_append_write_and_pwrite_are_one_file(file, path):
    assert file.append(b"abc") == 3
    assert file.append(b"") == 3
    file.write(3, b"def")
    file.pwrite(6, memoryview(b"ghi"))
    assert file.write_position == 3
    assert file.read(0, 10) == b"abcdefghi\0" == content(path)[:10]


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["append", "write", "pwrite", "zero", "allocate"]),
            st.integers(-5, 300),
            st.binary(max_size=120),
        ),
        max_size=30,
    )
)
@settings(max_examples=60)
def test_any_writes_as_a_bytearray(tmp_path_factory, steps):
    path = str(tmp_path_factory.mktemp("mapped") / "0")
    file = MappedFile(path, 256, create=True)
    model, allocated, end = bytearray(256), 0, 0
    for step, position, data in steps:
        if step == "allocate":
            file.allocate(position)
            allocated = max(allocated, min(position, 256))
            continue
        if step == "zero":
            position, last = position, position + len(data)
            if position >= 0 and last <= 256:
                file.zero(position, last)
                model[position:last] = bytes(len(data))
                if data:
                    allocated = min(allocated, position)
                    end = min(end, end)
            else:
                with pytest.raises(IndexError):
                    file.zero(position, last)
            continue
        at = end if step == "append" else position
        arguments = (data,) if step == "append" else (position, data)
        if data and not (at >= 0 and at + len(data) <= allocated):
            with pytest.raises(IndexError, match="outside"):
                getattr(file, step)(*arguments)
        else:
            getattr(file, step)(*arguments)
            if data:
                model[at : at + len(data)] = data
            end += len(data) if step == "append" else 0
        assert file.write_position == end
        assert file.allocated == allocated
    assert file.read(0, 256) == model
    assert content(path) == model


def test_nothing_is_written_outside_the_allocated_part(path):
    file = MappedFile(path, SIZE, create=True)
    with pytest.raises(IndexError):
        file.append(b"x")
    file.allocate(4096)
    file.write_position = 4095
    with pytest.raises(IndexError):
        file.append(b"xy")
    assert file.write_position == 4095
    assert file.append(b"x") == 4096
    assert os.fstat(file.fd).st_size == SIZE


def test_allocate_gives_blocks_once_and_keeps_data(path):
    file = MappedFile(path, SIZE, create=True)
    file.allocate(8192)
    file.write(0, b"kept")
    assert os.fstat(file.fd).st_blocks * 512 >= 8192
    file.allocate(4096)
    assert file.allocated == 8192
    file.allocate(SIZE * 10)
    assert file.allocated == SIZE
    again = MappedFile(path, SIZE)
    assert again.allocated == 0
    again.allocate(SIZE)
    assert again.read(0, 4) == b"kept"


def test_assume_allocated_only_grows(path):
    file = MappedFile(path, SIZE, create=True)
    file.assume_allocated(4096)
    file.assume_allocated(10)
    assert file.allocated == 4096
    with pytest.raises(IndexError):
        file.assume_allocated(SIZE + 1)


def test_refused_allocation_names_the_file_and_changes_nothing(file, path, tmp_path):
    other = MappedFile(str(tmp_path / "other"), SIZE, create=True)
    with open(path, "rb") as unwritable:
        os.dup2(unwritable.fileno(), other.fd)
    with pytest.raises(OSError, match="Bad file") as caught:
        other.allocate(SIZE)
    assert caught.value.filename == other.path
    assert other.allocated == other.holders == 0


def test_failed_flush_names_the_file_and_moves_nothing(file, path):
    file.append(b"x")
    reader, writer = os.pipe()
    os.dup2(writer, file.fd)
    os.close(reader)
    os.close(writer)
    with pytest.raises(OSError, match="Invalid") as caught:
        file.flush()
    assert caught.value.filename == path
    assert file.flushed_position == file.holders == 0


NO_FALLOCATE = """
import ctypes, errno, platform, struct, sys
from rmq._fastpath.log.mapped_file import MappedFile

number = {"x86_64": 285, "aarch64": 47}[platform.machine()]
program = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x20, 0, 0, 0),                                    # load the call's number
        (0x15, 0, 1, number),                               # fallocate?
        (0x06, 0, 0, 0x00050000 | errno.EOPNOTSUPP),        # then this error
        (0x06, 0, 0, 0x7FFF0000),                           # else allow
    )
)
code = ctypes.create_string_buffer(program)
libc = ctypes.CDLL(None, use_errno=True)
head = struct.pack("HxxxxxxP", 4, ctypes.addressof(code))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, head, 0, 0):
    sys.exit(77)

file = MappedFile(sys.argv[1], 65536)
file.allocate(65536)
file.zero(60000, 65536)
"""


def test_file_system_without_fallocate_gets_blocks_and_keeps_data(path):
    with open(path, "wb") as stream:
        stream.write(b"d" * 40_000)
        stream.truncate(SIZE)
    run = subprocess.run([sys.executable, "-c", NO_FALLOCATE, path], check=False)
    if run.returncode == 77:
        pytest.skip("this kernel takes no system call filter")
    assert run.returncode == 0
    assert content(path) == b"d" * 40_000 + bytes(SIZE - 40_000)
    assert os.stat(path).st_blocks * 512 >= SIZE


def test_short_pwrite_is_continued_and_then_reported(path):
    file = MappedFile(path, 1 << 20, create=True)
    file.allocate(1 << 20)
    with file_size_limit(1 << 16), pytest.raises(OSError, match="too large") as caught:
        file.pwrite((1 << 16) - 10, b"z" * 100)
    assert caught.value.filename == path
    assert file.read((1 << 16) - 10, 11) == b"z" * 10 + b"\0"


def test_zero_gives_the_blocks_back(file):
    file.write(0, b"a" * SIZE)
    file.zero(5000, SIZE)
    assert file.read(0, SIZE) == b"a" * 5000 + bytes(SIZE - 5000)
    assert file.allocated == 5000
    assert os.fstat(file.fd).st_size == SIZE
    file.zero(5000, 5000)
    with pytest.raises(IndexError):
        file.zero(5000, 4999)


@pytest.mark.parametrize(
    ("position", "size"),
    [(-1, 1), (0, -1), (SIZE, 1), (0, SIZE + 1), (1, 2**63 - 1), (2**63 - 1, 1)],
)
def test_reads_outside_are_refused(file, position, size):
    for call in (file.read, file.view, file.is_resident, file.load):
        with pytest.raises(IndexError, match="outside"):
            call(position, size)
    assert file.holders == 0


def test_position_outside_the_file_is_refused(file):
    for position in (-1, SIZE + 1):
        with pytest.raises(IndexError, match=f"position {position} outside"):
            file.write_position = position


def test_view_is_read_only_shares_the_pages_and_keeps_the_mapping(file):
    view = file.view(10, 5)
    assert view.readonly
    assert file.holders == 1
    file.write(10, b"hello")
    assert view == b"hello"
    with pytest.raises(BufferError, match="held by 1"):
        file.close()
    view.release()
    assert file.holders == 0


def test_view_outlives_the_name(path):
    file = MappedFile(path, SIZE, create=True)
    file.allocate(10)
    file.append(b"still here")
    view = file.view(0, 10)
    file.unlink()
    del file
    gc.collect()
    assert view == b"still here"
    assert not os.path.exists(path)


def test_hold_and_release(file):
    file.acquire()
    file.acquire()
    file.release()
    with pytest.raises(BufferError):
        file.close()
    file.release()
    with pytest.raises(AssertionError):
        file.release()


def test_closed_file_refuses_everything(path):
    file = MappedFile(path, SIZE, create=True)
    file.allocate(SIZE)
    descriptor = file.fd
    file.close()
    file.close()
    assert file.is_closed
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)
    for call, arguments in (
        (file.read, (0, 1)),
        (file.view, (0, 1)),
        (file.write, (0, b"x")),
        (file.pwrite, (0, b"x")),
        (file.append, (b"x",)),
        (file.zero, (0, 1)),
        (file.allocate, (1,)),
        (file.flush, ()),
        (file.acquire, ()),
    ):
        with pytest.raises(ValueError, match="is closed"):
            call(*arguments)
    with pytest.raises(BufferError, match="is closed"):
        memoryview(file)


def test_flush_returns_what_is_durable(file):
    file.append(b"x" * 100)
    assert file.flush() == file.flushed_position == 100
    file.append(b"y")
    assert file.flushed_position == 100
    file.assume_flushed(101)
    assert file.flushed_position == 101


def test_flush_moves_a_watermark_in_the_log(path):
    file, durable = MappedFile(path, SIZE, base_offset=5_000, create=True), Watermark()
    file.allocate(SIZE)
    file.append(b"x" * 100)
    assert file.flush(durable) == 100
    assert durable.value == 5_100


def test_read_only_file_refuses_writes(path):
    with open(path, "wb") as stream:
        stream.write(b"q" * SIZE)
    os.chmod(path, 0o444)
    file = MappedFile(path, SIZE, writable=False)
    file.assume_allocated(SIZE)
    assert file.read(0, 3) == b"qqq"
    for call, arguments in (
        (file.write, (0, b"x")),
        (file.pwrite, (0, b"x")),
        (file.append, (b"x",)),
        (file.zero, (0, 1)),
        (file.allocate, (1,)),
    ):
        with pytest.raises(ValueError, match="reading only"):
            call(*arguments)


def test_a_begun_flush_leaves_only_the_rest_to_be_flushed(disk_path):
    path = disk_path / "file"
    file = MappedFile(str(path), 16 * 4096, create=True)
    file.allocate(file.size)
    file.write(0, b"x" * file.size)
    assert dirty_bytes(path) == file.size
    file.begin_flush(4096, file.size - 4096)
    waiting = dirty_bytes(path)
    file.flush()
    if dirty_bytes(path):
        pytest.skip("this file system keeps all pages in memory")
    assert waiting == 2 * 4096
    with pytest.raises(IndexError, match="outside"):
        file.begin_flush(4096, file.size + 1)
    assert file.holders == 0
    file.close()
    with pytest.raises(ValueError, match="is closed"):
        file.begin_flush(0, 1)


def test_written_pages_are_resident(file):
    file.write(0, b"x" * SIZE)
    assert file.is_resident(0, SIZE)
    assert file.is_resident(5000, 1)
    assert file.is_resident(SIZE, 0)


def test_dropped_pages_are_loaded(disk_path):
    size = 200_000
    path = disk_path / "file"
    path.write_bytes(b"d" * size)
    drop_pages([path])
    file = MappedFile(str(path), size)
    if file.is_resident(0, size):
        pytest.skip("this file system keeps all pages in memory")
    file.load(4_096, size - 4_096)
    assert file.is_resident(4_096, size - 4_096)
    assert file.holders == 0
    file.close()
    with pytest.raises(ValueError, match="is closed"):
        file.load(0, 1)


def test_what_a_killed_process_wrote_is_there(path):
    script = (
        "import os, signal, sys\n"
        "from rmq._fastpath.log.mapped_file import MappedFile\n"
        f"file = MappedFile(sys.argv[1], {SIZE}, create=True)\n"
        "file.allocate(20000)\n"
        "file.append(b'm' * 5000)\n"
        "file.pwrite(5000, b'p' * 5000)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run([sys.executable, "-c", script, path], check=False)
    assert run.returncode == -signal.SIGKILL
    assert content(path) == b"m" * 5000 + b"p" * 5000 + bytes(SIZE - 10_000)


def test_a_block_that_heals_during_a_check(tmp_path):
    """The search for the bad block went on after the end of the file."""
    file = MappedFile(str(tmp_path / "log"), SIZE, create=True)
    file.allocate(SIZE)
    digests = file.digests = BlockDigests(SIZE)
    digests.seal_next(bytes(SIZE))
    right, wrong = bytes(SIZE), b"!" + bytes(SIZE - 1)
    found, is_over = set(), threading.Event()

    def change():
        while not is_over.is_set():
            digests.check_bytes(0, wrong)
            digests.check_bytes(0, right)

    other = threading.Thread(target=change)
    other.start()
    for _ in range(20_000):
        found.add(file.find_bad(0, SIZE))
    is_over.set()
    other.join()
    assert found <= {-1, 0}
    file.close()
