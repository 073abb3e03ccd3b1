"""Files are replaced whole: no power cut leaves half of one, nobody reads more of it.

Power cuts are played on the calls that a replacement makes.  Of a file, the disk has
what was synced last, and of what came since all, a half or nothing; of the names of a
folder, those of its last sync and any number of the changes since, in their order.
"""

import os
import stat
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from rmq.core import files
from rmq.core.files import replace_file


class Disk:
    """Watches the calls on one folder; knows every image a cut may leave."""

    def __init__(self, folder, *, forgets=()):
        self.folder = folder
        self.forgets = forgets
        """Kinds of sync that do nothing: a seeded bug."""
        self.images = []
        self._synced = {}
        self._descriptors = {}
        for path in folder.iterdir():
            self._synced[self._seen(path)] = path.read_bytes()
        self._listings = [self._names()]

    def _seen(self, path):
        """The file's inode; it is held open, so that no other one gets its number."""
        inode = path.stat().st_ino
        if inode not in self._descriptors:
            self._descriptors[inode] = os.open(path, os.O_RDONLY)
        return inode

    def _names(self):
        return {path.name: self._seen(path) for path in self.folder.iterdir()}

    def _contents(self, inode):
        """What the disk may have of a file."""
        now = os.pread(self._descriptors[inode], 1 << 20, 0)
        synced = self._synced.get(inode, b"")
        return {synced, now, now[: len(now) // 2]} if now != synced else {synced}

    def cut(self):
        """Every folder that may be found after a cut now, as name to content."""
        for listing in self._listings:
            choices = [self._contents(inode) for inode in listing.values()]
            for contents in product(*choices):
                yield dict(zip(listing, contents, strict=True))

    def _note(self):
        if self._names() != self._listings[-1]:
            self._listings.append(self._names())
        self.images.extend(self.cut())

    def sync(self, descriptor):
        self._note()
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            if "names" not in self.forgets:
                self._listings = [self._names()]
        elif "contents" not in self.forgets:
            inode = os.fstat(descriptor).st_ino
            self._synced[inode] = os.pread(self._descriptors[inode], 1 << 20, 0)
        self.images.extend(self.cut())

    @contextmanager
    def watching(self, monkeypatch):
        """Have every call of `files` that names or syncs a file noted."""
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", self.sync)
            for name in ("open", "link", "unlink", "replace"):
                patch.setattr(os, name, self._noting(getattr(os, name)))
            yield
        self.images.extend(self.cut())
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def _noting(self, call):
        inside = False

        def noted(*args, **kwargs):
            nonlocal inside
            answer = call(*args, **kwargs)
            if not inside:  # a look at the folder opens files too
                inside = True
                self._note()
                inside = False
            return answer

        return noted


def played(tmp_path, monkeypatch, *, backup, forgets=()):
    """What may be found at any moment of a replacement, and after its return."""
    path = tmp_path / "table.json"
    path.write_bytes(b"the first text")
    if backup:
        replace_file(path, b"the second text", backup=True)
    disk = Disk(tmp_path, forgets=forgets)
    with disk.watching(monkeypatch):
        replace_file(path, b"the last text", backup=backup)
        after = list(disk.cut())
    return disk.images, after


@pytest.mark.parametrize("backup", [False, True])
def test_no_power_cut_leaves_half_a_file(tmp_path, monkeypatch, backup):
    images, after = played(tmp_path, monkeypatch, backup=backup)
    before = b"the second text" if backup else b"the first text"
    assert {image["table.json"] for image in images} == {before, b"the last text"}
    assert {image["table.json"] for image in after} == {b"the last text"}
    kept = {image.get("table.json.bak") for image in images}
    assert kept <= {None, b"the first text", before}
    assert [image.get("table.json.bak") for image in after] == [
        before if backup else None
    ]


def test_a_replacement_that_does_not_sync_its_content_is_caught(tmp_path, monkeypatch):
    images, _ = played(tmp_path, monkeypatch, backup=False, forgets=["contents"])
    assert b"" in {image["table.json"] for image in images}


def test_a_replacement_that_does_not_sync_its_name_is_caught(tmp_path, monkeypatch):
    _, after = played(tmp_path, monkeypatch, backup=False, forgets=["names"])
    assert b"the first text" in {image["table.json"] for image in after}


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(value):
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o400])
def test_a_file_keeps_its_mode_and_so_do_its_companions_at_every_moment(
    tmp_path, monkeypatch, mode
):
    path = tmp_path / "broker.conf"
    path.write_bytes(b"secret=1")
    path.chmod(mode)
    seen = set()

    def look(descriptor):
        seen.update(mode_of(one) for one in tmp_path.iterdir())

    monkeypatch.setattr(os, "fsync", look)
    real_open = os.open

    def opened(*args, **kwargs):
        descriptor = real_open(*args, **kwargs)
        seen.update(mode_of(one) for one in tmp_path.iterdir())
        return descriptor

    monkeypatch.setattr(os, "open", opened)
    with umask(0o022):
        replace_file(path, b"secret=2", backup=True)
    assert all(one & ~mode & 0o077 == 0 for one in seen), [oct(one) for one in seen]
    assert mode_of(path) == mode_of(tmp_path / "broker.conf.bak") == mode


def test_a_new_file_has_the_mode_of_the_umask_or_the_one_asked_for(tmp_path):
    with umask(0o027):
        replace_file(tmp_path / "a", b"")
        replace_file(tmp_path / "b", b"", mode=0o600)
    assert (mode_of(tmp_path / "a"), mode_of(tmp_path / "b")) == (0o640, 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_keeps_its_owner(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_bytes(b"")
    os.chown(path, 1234, 4321)
    replace_file(path, b"new", backup=True)
    for one in (path, tmp_path / "broker.conf.bak"):
        assert (one.stat().st_uid, one.stat().st_gid) == (1234, 4321)


def test_an_owner_that_may_not_be_given_is_no_error(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError

    path = tmp_path / "broker.conf"
    path.write_bytes(b"")
    monkeypatch.setattr(os, "fchown", refuse)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_folder_that_is_missing_is_made_and_its_name_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "sync_directory", synced.append)
    replace_file(tmp_path / "a" / "b" / "f", b"x")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_what_cannot_be_written_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new", backup=True)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"f": b"old"}


def test_the_leftover_of_a_crash_is_no_obstacle(tmp_path):
    (tmp_path / "f.tmp").write_bytes(b"half")
    (tmp_path / "f.tmp").chmod(0)
    target = tmp_path / "elsewhere"
    replace_file(tmp_path / "f", b"new")
    (tmp_path / "f.tmp").symlink_to(target)
    replace_file(tmp_path / "f", b"newer")
    assert (tmp_path / "f").read_bytes() == b"newer"
    assert not Path(target).exists()
