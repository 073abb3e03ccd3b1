"""The transport of kombu, the library of messages below Celery.

| module | content |
|---|---|
| `transport` | connection, event loop, waiting |
| `channel` | publishing, queues, exchanges, delivery |
| `qos` | the unacknowledged messages of a channel |
| `cursors` | where this process reads its ephemeral queues |
| `routing` | which topics, tags and patterns a queue reads |
| `envelope` | a message as bytes and properties |
| `options` | `broker_transport_options` |
"""
