"""The newest set that a broker knows survives its restart."""

import pytest

from rmq.cluster.controller_role import Term
from rmq.cluster.known_set import KnownSetFile
from rmq.controller.election import KnownSet


def term(epoch, number, *members):
    return Term(epoch, 1, "h:1", 2, frozenset(members), number)


def test_it_is_read_again(tmp_path):
    path = tmp_path / "knownSet"
    known = KnownSetFile(path)
    assert known.is_newer(term(1, 1, 1))
    known.save(term(3, 4, 2, 1))
    again = KnownSetFile(path)
    assert KnownSet.decode(again.text) == KnownSet(3, 4, 1, (1, 2))
    found = [again.is_newer(term(*each)) for each in ((3, 4, 1), (2, 9, 1), (3, 5, 1))]
    assert found == [False, False, True]
    assert not again.is_newer(term(9, 9)), "without members it is no set"


@pytest.mark.parametrize("data", [b"", b"\0" * 30, b"x/y/z", b"\xff\xfe"])
def test_a_damaged_file_is_none(tmp_path, data):
    path = tmp_path / "knownSet"
    path.write_bytes(data)
    known = KnownSetFile(path)
    assert known.text == ""
    assert known.is_newer(term(1, 1, 1))
