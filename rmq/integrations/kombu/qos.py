"""QoS: the unacknowledged messages of a channel, as kombu keeps them."""

from typing import Any

from kombu.transport import virtual


class QoS(virtual.QoS):
    """The messages that a `Channel` has delivered."""

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message."""
        super().ack(delivery_tag)
        self.channel.settler.acknowledge(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop a message, or let another worker have it."""
        if requeue:
            self.channel.requeue(self._delivered.get(delivery_tag), delivery_tag)
        else:
            self.channel.settler.acknowledge(delivery_tag)
        super().ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Give all messages back to the broker."""
        self._flush()
        if not self.channel.link.is_foreign:
            self.channel.settler.give_back(list(self._delivered))
        self._delivered.clear()
        return []

    @property
    def open_count(self) -> int:
        """The number of messages that are not acknowledged."""
        return len(self._delivered) - len(self._dirty)
