"""Signatures of requests; sends and pulls become commands, so that their fields can be
signed.
"""

from collections.abc import Callable
from typing import NamedTuple

from rmq._fastpath.client.codec import PullTemplate, SendTemplate
from rmq.access.signature import sign
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pull import PullMessageRequestHeader
from rmq.protocol.headers.send import SendMessageRequestHeaderV2
from rmq.protocol.topics import DEFAULT_TOPIC


class Credentials(NamedTuple):
    """A user and its password; Java calls them access key and secret key.

    Args:
        access_key (str): the name of the user.
        secret_key (str): the password. `repr` does not show it.
    """

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r}, ...)"


def make_signer(credentials: Credentials) -> Callable[[Command], None]:
    """Return a function that adds the user and the signature to a request."""

    def add(command: Command) -> None:
        sign(command, credentials.access_key, credentials.secret_key)

    return add


def send_command(
    template: SendTemplate, properties: bytes, body: bytes, born_ms: int, sys_flag: int
) -> Command:
    """Return a send as a command."""
    header = SendMessageRequestHeaderV2(
        producer_group=template.group,
        topic=template.topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=4,
        queue_id=template.queue_id,
        sys_flag=sys_flag,
        born_timestamp=born_ms,
        flag=template.flag,
        properties=properties.decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=template.is_batch,
    )
    code = RequestCode.SEND_MESSAGE_V2
    if template.is_batch:
        code = RequestCode.SEND_BATCH_MESSAGE
    return Command.request(code, header, body)


def pull_command(
    template: PullTemplate, offset: int, count: int, hold_ms: int, sys_flag: int
) -> Command:
    """Return a pull as a command."""
    header = PullMessageRequestHeader(
        consumer_group=template.group,
        topic=template.topic,
        queue_id=template.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=sys_flag,
        commit_offset=0,
        suspend_timeout_millis=hold_ms,
        subscription=template.expression,
        sub_version=template.version,
        expression_type=template.kind,
    )
    return Command.request(RequestCode.PULL_MESSAGE, header)
