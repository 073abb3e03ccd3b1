"""The retention time of a running broker passes at once."""

import os
import time

from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode
from rmq.store.cleanup_worker import clean

WAIT_S = 60


def remove_old(broker, topic="T"):
    """Remove all segments but the last one; where queue 0 of the topic begins now."""
    store = broker.node.broker.context.store
    end_s = time.monotonic() + WAIT_S
    while len(files := store.log.files.files) > 1:
        for file in files[:-1]:
            os.utime(file.path, (0, 0))
        store.cleaner.request()
        broker.run(clean, store)
        assert time.monotonic() < end_s, "a file is not durable, or not indexed"
        time.sleep(0.05)
    with AdminClient([broker.name_server]) as admin:
        where = {"topic": topic, "queueId": 0}
        answer = admin.request(broker.address, RequestCode.GET_MIN_OFFSET, where)
    return int(answer.ext_fields["offset"])
