"""NativeHandler: the base of compiled request handlers (the contract is native.pxd).

A subclass passes the CONTRACT_VERSION that it was compiled with. So the registration
refuses a handler that was compiled for other structs. Called by the reactor inside a
poll, on the thread and with the GIL that it holds.
"""


cdef class NativeHandler:
    """Serves frames of one request code, or declines them."""

    def __init__(
        self,
        tuple fields not None,
        tuple varying not None,
        int version,
        tuple reasons not None=("unusual",),
    ):
        if not 0 < len(reasons) <= REASON_LIMIT:
            raise ValueError(f"{len(reasons)} reasons, 1 to {REASON_LIMIT}")
        if len(fields) > FIELD_LIMIT:
            raise ValueError(f"{len(fields)} header fields, at most {FIELD_LIMIT}")
        if not set(varying) <= set(fields):
            raise ValueError(f"{varying} are not all among {fields}")
        if version != CONTRACT_VERSION:
            raise ValueError(
                f"compiled for version {version} of the handler contract, "
                f"this is version {CONTRACT_VERSION}: build the plugin again"
            )
        self.fields = fields
        self.varying = varying
        self.reasons = reasons
        self.contract_version = version

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Serve one frame: the reply goes to one of the outboxes."""
        return DECLINED

    cdef bint end_of_poll(self) noexcept nogil:
        """Finish the batch of a poll before any reply is sent; False if it is lost."""
        return True

    cdef bint take_turn(self, int64_t now_ms) noexcept nogil:
        """Continue requests that were kept; True if some need another turn."""
        return False
