"""Commands that remove data that brokers no longer need."""

from rmq.cli.admin.base import (
    Output,
    broker_option,
    cluster_option,
    register_command,
    resolve_brokers,
    send_to_brokers,
)
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode


@register_command("cleanUnusedTopic")
@broker_option
@cluster_option
def clean_unused_topic(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Output:
    return request_cleanup(admin, RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster)


@register_command("cleanExpiredCQ")
@broker_option
@cluster_option
def clean_expired_cq(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Output:
    return request_cleanup(
        admin, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster
    )


@register_command("deleteExpiredCommitLog")
@broker_option
@cluster_option
def delete_expired_commit_log(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Output:
    return request_cleanup(admin, RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster)


def request_cleanup(
    admin: AdminClient, code: int, broker: str | None, cluster: str | None
) -> Output:
    """Send a request to the broker of -b, to all brokers of -c, or to all brokers."""
    is_chosen = broker or cluster
    brokers = (
        resolve_brokers(admin, broker, cluster, slaves=True)
        if is_chosen
        else admin.brokers()
    )
    return send_to_brokers(admin, brokers, code)
