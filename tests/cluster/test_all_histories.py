"""Every history of a small group keeps its promises; each mistake breaks one.

`tests/model/histories.py` runs the rules of production through all orders of events.
RMQ_MODEL_STATES=0 visits all states of three brokers and three messages, too: of kills
in 18 minutes; otherwise so many of each group (50000: all of the smaller ones).
"""

import os

import pytest

from rmq.cluster.sync_set import SyncSet
from tests.model.histories import explore
from tests.model.replication import Rules, Violation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

STATES = int(os.environ.get("RMQ_MODEL_STATES", "50000")) or None
KILLS = Rules(loses_tail=False)
DISKS = Rules(is_sync_flush=True)
POWER = Rules(least_in_sync=2, elects_for_the_dead=True, crashes=1, is_lossy=False)
"""Without SYNC_FLUSH the group bears one power cut, and nothing else at that time. A
second one, of a master that nobody has copied yet, takes what the first has left; and a
master that has just lost its slave is alone in the set without its tail."""

KINDS = {"kills": KILLS, "disks": DISKS, "power cuts": POWER}
SIZES = (2, 2), (2, 3), (3, 1), (3, 3)


class ShrinksAtOnce(SyncSet):
    """Java 5.5.0: a broker whose connection is lost no longer counts."""

    @property
    def required_acks(self):
        return super().required_acks - self.absent_now()

    def absent_now(self):
        return self.members - self._ack_offsets.keys() - {self.own_id}


MISTAKES = {
    "the set shrinks before the controller knows": KILLS._replace(group=ShrinksAtOnce),
    "a broker that lost its tail does not step aside": POWER._replace(
        steps_aside=False
    ),
    "reports are of what is written, not of the disk": DISKS._replace(
        reports_written=True
    ),
    "a refusal says that nothing was carried out": KILLS._replace(
        learns_refusals=False, messages=1, crashes=0
    ),
    "a request is forgotten by a start": KILLS._replace(
        notes_requests=False, messages=1
    ),
    "a start forgets that others were asked in": KILLS._replace(
        forgets_requests_at_start=True
    ),
    "logs are compared by their epochs only": DISKS._replace(compares_bytes=False),
    "more is reported than there is": KILLS._replace(over_reports=True),
}


@pytest.mark.parametrize(("brokers", "messages"), SIZES)
@pytest.mark.parametrize("rules", KINDS.values(), ids=KINDS)
def test_no_history_breaks_a_promise(rules, brokers, messages):
    states, is_all = explore(rules._replace(brokers=brokers, messages=messages), STATES)
    what = "all" if is_all else "not all"
    print(f"{states} states, {what}")  # noqa: T201 - the size of the proof
    assert states > 1_000


@pytest.mark.parametrize("rules", MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_found(rules):
    with pytest.raises(Violation) as found:
        explore(rules, 200_000)
    print(found.value)  # noqa: T201 - the shortest history
