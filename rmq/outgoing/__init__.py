"""Connections that this process opens to servers of RocketMQ.

`ClientCodec` has the bytes and the pending calls of a connection; `signing` adds
signatures. `connection` runs the codec on a wire of asyncio or trio, for `rmq.client`,
brokers and name servers. `link` runs it on a blocking socket, for tools that send one
request after the other and need no event loop.
"""
