from typing import Self, final

from rmq._fastpath.reactor.connections import Connections
from rmq._fastpath.reactor.native_table import NativeTable

@final
class SocketFrameDecoder:
    def __new__(
        cls, connections: Connections, natives: NativeTable, max_frame_size: int
    ) -> Self: ...
