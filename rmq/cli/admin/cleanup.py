"""Commands that remove data which brokers no longer need."""

from rmq.cli.admin.base import (
    Output,
    broker_option,
    cluster_option,
    register_command,
    resolve_brokers,
)
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode


@register_command("cleanUnusedTopic")
@broker_option
@cluster_option
def clean_unused_topic(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Output:
    """Remove the queues of topics that a broker does not know any more."""
    return request_cleanup(admin, RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster)


@register_command("cleanExpiredCQ")
@broker_option
@cluster_option
def clean_expired_cq(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Output:
    """Remove queue files whose messages are deleted."""
    return request_cleanup(
        admin, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster
    )


@register_command("deleteExpiredCommitLog")
@broker_option
@cluster_option
def delete_expired_commit_log(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Output:
    """Let brokers delete expired log files at any hour."""
    return request_cleanup(admin, RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster)


def request_cleanup(
    admin: AdminClient, code: int, broker: str | None, cluster: str | None
) -> Output:
    """Ask brokers to clean up; without -b and -c all of them."""
    asked = (
        resolve_brokers(admin, broker, cluster, slaves=True)
        if broker or cluster
        else admin.brokers()
    )
    for each in asked:
        admin.ask(each.address, code)
    return [f"{each.address} success" for each in asked]
