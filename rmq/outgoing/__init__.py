"""Connections that this process opens: the one way to ask a server of RocketMQ.

`ClientCodec` has the bytes and the calls in flight of a connection, `signing` adds
signatures. `connection` runs it on a wire of asyncio or trio, for `rmq.client` and for
brokers and name servers; `link` on a blocking socket, for tools that ask one question
after the other and are not to pay for an event loop.
"""
