"""Every history of a small group keeps its promises; each mistake breaks one.

`tests/model/replication.py` runs the rules of production through all orders of events.
States: RMQ_MODEL_STATES (20000) for each of the groups without a mistake; 0: all.
"""

import os

import pytest

from rmq.replication.sync_set import SyncSet
from tests.model.replication import Rules, Violation, explore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

STATES = int(os.environ.get("RMQ_MODEL_STATES", "20000")) or None
KILLS = Rules(messages=2, epochs=3, loses_tail=False)
DISKS = Rules(messages=2, epochs=3, is_sync_flush=True)
POWER = Rules(
    messages=2, epochs=2, least_in_sync=2, elects_for_the_dead=True, crashes_in_all=1,
    is_lossy=False,
)  # fmt: skip
"""Without SYNC_FLUSH the group bears one power cut, and nothing else at that time. A
second one, of a master that nobody has copied yet, takes what the first has left; and a
master that has just lost its slave is alone in the set without its tail."""

THREE = Rules(brokers=3, messages=1, epochs=2, loses_tail=False)
GROUPS = {"kills": KILLS, "disks": DISKS, "power cuts": POWER, "three": THREE}


class ShrinksAtOnce(SyncSet):
    """Java 5.5.0: a broker whose connection is lost no longer counts."""

    @property
    def waited_for(self):
        return super().waited_for - self.absent_now()

    def absent_now(self):
        return self.members - self._acknowledged.keys() - {self.own_id}


MISTAKES = {
    "the set shrinks before the controller knows": KILLS._replace(group=ShrinksAtOnce),
    "a broker that lost its tail does not step aside": POWER._replace(
        steps_aside=False
    ),
    "reports are of what is written, not of the disk": DISKS._replace(
        reports_written=True
    ),
    "a refusal says that nothing was carried out": KILLS._replace(
        learns_refusals=False, messages=1, epochs=2, crashes=0
    ),
    "a request is forgotten by a start": KILLS._replace(
        notes_requests=False, messages=1, epochs=2
    ),
    "more is reported than there is": KILLS._replace(over_reports=True),
}


@pytest.mark.parametrize("rules", GROUPS.values(), ids=GROUPS)
def test_no_history_breaks_a_promise(rules):
    states, is_all = explore(rules, STATES)
    what = "all" if is_all else "not all"
    print(f"{states} states, {what}")  # noqa: T201 - the size of the proof
    assert states > 1_000


@pytest.mark.parametrize("rules", MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_found(rules):
    with pytest.raises(Violation) as found:
        explore(rules, 200_000)
    print(found.value)  # noqa: T201 - the shortest history
