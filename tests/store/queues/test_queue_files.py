"""The mapped queue files and their bound."""

import errno
import os

import pytest

from rmq.core.errors import StoreError
from rmq.store.descriptors import DescriptorReserve
from rmq.store.queues import queue_files
from rmq.store.queues.queue_files import QueueFiles

FILE_SIZE = 200


@pytest.fixture
def files():
    files = QueueFiles(FILE_SIZE, DescriptorReserve(0))
    yield files
    files.close()


@pytest.fixture
def paths(tmp_path):
    paths = [tmp_path / f"{n * FILE_SIZE:020d}" for n in range(8)]
    for path in paths:
        path.write_bytes(bytes(FILE_SIZE))
    return [str(path) for path in paths]


def test_the_oldest_files_are_unmapped(files, paths):
    files.limit = 3
    opened = [files.open(path, 0) for path in paths[:3]]
    assert files.open(paths[0], 0) is opened[0]
    files.open(paths[3], 0)
    assert [file.is_closed for file in opened] == [False, True, False]
    assert len(files) == 3


def test_held_files_stay_mapped(files, paths):
    files.limit = 2
    held = files.open(paths[0], 0)
    view = held.view(0, 20)
    for path in paths[1:]:
        files.open(path, 0)
    assert not held.is_closed
    assert len(files) <= 3
    files.unmap_file(paths[0])
    assert bytes(view) == bytes(20)
    view.release()


def test_without_descriptors_others_are_unmapped(files, paths, monkeypatch):
    opened = [files.open(path, 0) for path in paths[:2]]
    real = queue_files.MappedFile

    def short(*arguments, **options):
        if not opened[0].is_closed:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(*arguments, **options)

    monkeypatch.setattr(queue_files, "MappedFile", short)
    assert not files.open(paths[2], 0).is_closed


def test_what_cannot_be_opened_is_named(files, paths, tmp_path):
    with pytest.raises(StoreError, match=r"cannot open .*/none: No such file"):
        files.open(str(tmp_path / "none"), 0)
    os.truncate(paths[0], 20)
    with pytest.raises(StoreError, match="repair it with `rmq store repair`"):
        files.open(paths[0], 0)
