"""Compiled handlers: sends, pulls, POPs, acks, commits, heartbeats.

Top room: it cimports bytes, log, reactor and http2.  The reactor calls a `_path` for
each request; its `_table` has the objects that Python has registered. Plugins create
both through rmq/plugin/native.py.

send_path            requests 10, 310 and 320
send_table           topics and queues of sends; messages staged in a poll
once_table           keys of stored messages, in topics that store a key once
diversion            sends with a delay level, half messages: stored in another queue
timed_sends          sends with a delivery time, for the timer plugin
send_back_path       request 36
end_path             request 37 that commits a transaction
pull_path            requests 11 and 361
pull_table           views and queues of pulls
pull_search          messages that a pull finds
pull_reply           the reply to a pull
held_pulls           pulls, POPs and notifications that wait for messages
pop_path             request 200050
pop_table            views and queues of POPs
pop_search           messages that a POP finds
pop_reply            the reply to a POP
receive_calls        ReceiveMessage of gRPC, by the POPs
notification_path    request 200054
ack_path             request 200051
invisible_time_path  request 200053
checkpoint           the messages of one POP of a queue
checkpoint_table     popped messages without ack
commit_path          request 15
commit_table         offsets committed in a poll, by all handlers
heartbeat_path       request 34
lookup_path          requests that Python answers with one number or one body
reply_fields         ext fields that every reply carries
"""
