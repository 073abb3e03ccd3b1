"""The reactor: connections, frames, headers and held replies.

It cimports bytes and log.  The trio task that owns the reactor (remoting/loop.py) calls
it. Handlers use `native`, `header_text` and `connections` only; plugins use `native`.

reactor        Reactor: one poll over the epoll set
inner_loop     InnerLoop: polls while trio would sleep
pacing         how long a poll waits, how many frames Python gets
steps          Steps: work of the serving thread between two waits for events
connections    Connections: slots, tokens, buffers and their budget; WireProtocol
buffers        inboxes and outboxes
frame_decoder  SocketFrameDecoder: bytes of a socket to frames
tls_layer      TlsLayer: encrypts a connection by Python's `ssl`
native         NativeHandler: the contract of compiled handlers, public to plugins
native_table   NativeTable: the handler of a frame
header_scan    headers to fields, without Python objects
header_text    field values from requests, and headers of replies
template       learned headers of a connection
signatures     the signed content of a request, and its check
grants         Grants: what a guard in Python has allowed
held_replies   HeldReplies: replies that wait for a watermark
rpc_times      histograms of replies by request and response code
"""
