"""The measurement of growth against a real broker: small sizes, every figure there."""

import argparse

import pytest

from bench.load import crowd
from lab import growth


@pytest.fixture
def options(tmp_path):
    return argparse.Namespace(
        directory=str(tmp_path), set=["mappedFileSizeCommitLog=16777216"],
        descriptors=256, members=[3], pulls=[20], names=[30], connections=[4],
        registration=1,
        java=False,
    )  # fmt: skip


@pytest.mark.slow
def test_members_hear_of_each_other(options):
    (row,) = growth.grow_members(options)
    assert row["members"] == 3
    assert 3 <= row["notices"] <= 6, "in rounds, not one for each pair"
    assert row["pause_ms"] > 0


@pytest.mark.slow
def test_pulls_end_together(options):
    (row,) = growth.grow_pulls(options)
    assert (row["pulls"], row["answers"]) == (20, 20)


@pytest.mark.slow
def test_every_request_about_names_is_answered(options, monkeypatch):
    quick = dict.fromkeys(crowd.NAME_PARTS, 0.1)
    monkeypatch.setattr(crowd, "NAME_PARTS", quick)
    rows = list(growth.names_rows(options, "rmq", 30))
    assert len(rows) == len(quick) + 1
    assert all(row["rate"] > 0 for row in rows[:-1])


@pytest.mark.slow
def test_fewer_connections_than_requests_in_flight(options, monkeypatch):
    monkeypatch.setattr(growth, "SEND_S", 0.2)
    growth.run.build()
    (row,) = growth.grow_connections(options)
    assert row["connections"] == 4
    assert row["s_per_million"] > row["echo_s_per_million"] > 0


def test_figures_are_short():
    texts = [growth.text_of(each) for each in (12_345, 123.4, 1.2345, "create", 0.0)]
    assert texts == ["12,345", "123", "1.23", "create", "0"]
