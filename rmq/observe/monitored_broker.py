"""MonitoredBroker: a broker with its monitor, as views and samples get it."""

from typing import Protocol

from rmq.observe.broker_view import BrokerView
from rmq.observe.monitor_state import MonitorState


class MonitoredBroker(BrokerView, Protocol):
    """A broker with its monitor."""

    @property
    def monitor(self) -> MonitorState:
        """The state of the monitor."""
