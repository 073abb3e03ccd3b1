"""Headers of transactions."""

from rmq.protocol.headers import I32, I64, RpcHeader


class EndTransactionRequestHeader(RpcHeader, kw_only=True):
    """Request 37 END_TRANSACTION."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(RpcHeader, kw_only=True):
    """Request 323 RESUME_CHECK_HALF_MESSAGE."""

    topic: str | None = None
    msg_id: str


class CheckTransactionStateRequestHeader(RpcHeader, kw_only=True):
    """Request 39 CHECK_TRANSACTION_STATE."""

    topic: str | None = None
    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
