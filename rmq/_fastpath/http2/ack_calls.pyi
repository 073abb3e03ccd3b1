from typing import final

from rmq._fastpath.http2.call_paths import CallPath
from rmq._fastpath.http2.renewal_table import RenewalTable

@final
class AckCalls(CallPath):
    def __init__(self, code: int, renewals: RenewalTable) -> None: ...
