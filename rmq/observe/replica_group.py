"""The part of a broker in a group with a controller, as the console and `rmq top` show.

Only the master knows the sync state set, and the log end of each broker.
"""

from typing import Any

from rmq.observe.broker_view import BrokerView


def replica_group_of(broker: BrokerView) -> dict[str, Any] | None:
    """Return epoch, set and lag; None if the broker is in no such group.

    `unconfirmed`: bytes that some broker of the set may lack, so that readers do not
    see them. `members` is null on a slave; `behind` is null if a broker is not
    connected.
    """
    control = broker.replication.term_state
    if control is None:
        return None
    end = broker.store.log.end_offset
    found: dict[str, Any] = {
        "name": broker.config.broker_name,
        "epoch": control.epoch,
        "is_master": broker.role.is_master,
        "unconfirmed": max(0, end - broker.store.positions.visible),
        "members": None,
    }
    if (group := control.sync_set) is not None:
        acknowledged = {group.own_id: end, **group.ack_offsets}
        found["members"] = [
            {
                "id": number,
                "is_own": number == group.own_id,
                "in_set": number in group.members,
                "waited_for": number in group.required_acks,
                "behind": end - acknowledged[number]
                if number in acknowledged
                else None,
            }
            for number in sorted(group.required_acks | acknowledged.keys())
        ]
    return found
