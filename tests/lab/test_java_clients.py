"""What lab/java_clients.py reads from Java's benchmark clients, and shows."""

import math

import pytest

from lab import java_clients
from lab.java_clients import Consumed, Reading, Sent

PRODUCER = """\
topic: Benchmark-1-0 threadCount: 64 messageSize: 128 keyEnable: false
Current Time: 2026-11-21 21:40:03,118 | Send TPS: 8123 | Max RT(ms): 912 \
| Average RT(ms):   7.861 | Send Failed: 0 | Response Failed: 0
[WARN] something else
Current Time: 2026-11-21 21:40:13,118 | Send TPS: 30210 | Max RT(ms): 912 \
| Average RT(ms):   2.115 | Send Failed: 3 | Response Failed: 1
Current Time: 2026-11-21 21:40:23,118 | Send TPS: 0 | Max RT(ms): 912 \
| Average RT(ms):     NaN | Send Failed: 3 | Response Failed: 1
Current Time: 2026-11-21 21:40:33,118 | Send TPS: 301"""
CONSUMER = """\
Consumer Started.
Current Time: 1795297203118 | Consume TPS: 30100 | AVG(B2C) RT(ms):   4.250 \
| AVG(S2C) RT(ms):   2.125 | MAX(B2C) RT(ms): 412 | MAX(S2C) RT(ms): 399 \
| Consume Fail: 0
"""


def test_reports_of_the_producer():
    first, second, idle = java_clients.sent_reports(PRODUCER)
    assert first == Sent(8123, 912, 7.861, 0, 0)
    assert second == Sent(30210, 912, 2.115, 3, 1)
    assert math.isnan(idle.average_rt_ms)
    assert java_clients.consumed_reports(PRODUCER) == []


def test_reports_of_the_consumer():
    (report,) = java_clients.consumed_reports(CONSUMER)
    assert report == Consumed(30100, 4.25, 2.125, 412, 399, 0)
    assert java_clients.sent_reports(CONSUMER) == []


def test_a_client_that_prints_too_little_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(java_clients, "REPORT_S", 0)
    monkeypatch.setattr(java_clients, "LATE_S", 0)
    home = tmp_path / "Producer"
    home.mkdir()
    (home / "output").write_text(PRODUCER)
    assert len(java_clients.wait_for(home, java_clients.sent_reports, 3)) == 3
    with pytest.raises(SystemExit, match=r"Producer has printed 3 of 4 (.|\n)*WARN"):
        java_clients.wait_for(home, java_clients.sent_reports, 4)


def test_cost_is_the_cpu_time_between_two_readings():
    reports = java_clients.sent_reports(PRODUCER)[:2]
    figures = java_clients.sent_figures(reports, Reading(3, 50_000), Reading(4, 90_000))
    assert figures["s_per_million"] == pytest.approx(25)
    assert figures["send_tps"] == 30_210, "the first report is of a cold client"
    with pytest.raises(SystemExit, match="stored nothing"):
        java_clients.sent_figures(reports, Reading(3, 50_000), Reading(4, 50_000))


def test_what_a_cold_client_failed_at_does_not_count():
    first, second, idle = java_clients.sent_reports(PRODUCER)
    readings = Reading(3, 50_000), Reading(4, 90_000)
    assert java_clients.sent_figures([first, second], *readings)["failed"] == 4
    assert java_clients.sent_figures([second, idle], *readings)["failed"] == 0


def result():
    sent = {
        "s_per_million": 5.0, "send_tps": 30_000, "average_rt_ms": 2.1,
        "max_rt_ms": 912, "failed": 0,
    }  # fmt: skip
    consumed = {"consume_tps": 30_000, "b2c_rt_ms": 4.25, "s2c_rt_ms": 2.125}
    slower = {"s_per_million": 50.0, "send_tps": 20_000}
    return {
        "mode": "ASYNC_FLUSH",
        "cases": {
            "send": {"rmq": sent, "java": sent | slower},
            "send and consume": {
                "rmq": sent | consumed,
                "java": sent | consumed | slower | {"consume_tps": 15_000},
            },
        },
    }


def test_the_table():
    lines = java_clients.text(result()).splitlines()
    compared = [line.split() for line in lines if "rmq : Java" in line]
    assert compared == [
        ["rmq", ":", "Java", "1/10.0", "1.5", "x"],
        ["rmq", ":", "Java", "1/10.0", "1.5", "x", "2.0", "x"],
    ]
    (row,) = [line for line in lines if line.startswith("send and consume")]
    assert row.split()[3:] == [
        "rmq", "5.00", "30,000", "2.10", "912", "0", "30,000", "4.25", "2.12",
    ]  # fmt: skip


def test_a_run_with_one_server_compares_nothing():
    alone = result()
    for servers in alone["cases"].values():
        del servers["java"]
    text = java_clients.text(alone)
    assert "Java" not in text.partition("\n")[2]
    assert text.count("30,000") == 3
