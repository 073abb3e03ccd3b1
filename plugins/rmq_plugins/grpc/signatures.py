"""Signatures of calls: MQv2-HMAC-SHA1 over the header `x-mq-date-time`.

    authorization: MQv2-HMAC-SHA1 Credential=USER[/…], SignedHeaders=x-mq-date-time,
        Signature=HEX

SDKs write the digits in capitals (Java) or small (Go, Python).
"""

import re
from typing import Final

from rmq.plugin import GrpcCall, RequestRejected, RequestRights
from rmq_plugins.grpc.sessions import Session
from rmq_plugins.grpc.statuses import Code, Refused

_FORM: Final = re.compile(
    r"MQv2-HMAC-SHA1 +Credential=([^,/ ]{1,256})[^, ]*, *"
    r"SignedHeaders=x-mq-date-time, *Signature=([0-9A-Fa-f]{40})"
)


def authenticate(rights: RequestRights, call: GrpcCall, session: Session) -> None:
    """Set the user who has signed a call; Refused without a correct signature."""
    found = _FORM.fullmatch(call.metadata.get("authorization", ""))
    if found is None:
        raise Refused(Code.UNAUTHORIZED, "the call has no signature MQv2-HMAC-SHA1")
    user, signature = found.groups()
    content = call.metadata.get("x-mq-date-time", "").encode()
    try:
        rights.authenticate(user, content, bytes.fromhex(signature))
    except RequestRejected as error:
        raise Refused(Code.UNAUTHORIZED, error.remark) from None
    assert session.caller is not None, "a session has a caller"
    session.caller.user = user
