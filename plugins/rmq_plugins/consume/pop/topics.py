"""The topic in which the timer delivers the records of POP."""

from rmq.plugin import BrokerConfig


def revive_topic(config: BrokerConfig) -> str:
    """Return the revive topic of the cluster, as Java names it."""
    return f"rmq_sys_REVIVE_LOG_{config.broker_cluster_name}"
