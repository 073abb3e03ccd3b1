"""HTTP/2 and gRPC: the calls of 5.x SDKs.

It cimports bytes, log and reactor.  The reactor gives `frames` the connections that
begin with HTTP/2.  `rmq/remoting/grpc_server.py` takes the calls for Python.

huffman       Huffman codes of header texts
header_names  names of headers by number, and HPACK's static table
hpack         HPACK: header blocks to names and values
grpc_methods  methods of the service by their paths
request_head  the headers of a request, and their rules
streams       open streams of a connection
peers         what a connection knows: streams, windows, limits of its rate
answers       frames that leave
frames        Http2: frames that come
proto_wire    protobuf's fields
sent_message  the message of a SendMessageRequest
call_answers  answers as protobuf writes them
call_paths    CallPath: base of compiled calls
send_calls    SendCalls: SendMessage by the compiled sends
ack_calls     AckCalls: AckMessage by the compiled acks
renewal_table  RenewalTable: messages that push consumers process
beat_calls    BeatCalls: Heartbeat by the compiled heartbeats
message_encoder  MessageEncoder: the messages of a receive
grpc_wire     GrpcWire: messages and calls
"""
