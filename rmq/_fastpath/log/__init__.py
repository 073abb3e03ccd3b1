"""The log, its queues and its index, in memory and in mapped files.

It cimports bytes.  The thread that owns the store calls these modules, unless their
heads allow others.

layout        byte tables of records and queue entries; everybody reads them there
encode        records to bytes: the staging buffer
decode        bytes to records: what is valid
batch_items   messages in the body of a request 320
record_keys   keys of a record and their hashes, for new_keys and index_file
tail          LogTail: append of a record with its queue entry
tail_ring     TailRing: the last bytes of the log in memory
log_writer    LogWriter: from the ring to the files, on its own thread
log_reader    LogReader: from ring or file to every reader
extent        Extent: a range of a log or queue in memory; base of MappedFile
mapped_file   MappedFile: one file of fixed length
block_digests  BlockDigests: the CRC-32 of each block of a file of the log
claim         Claim: how far the log was written, durable and confirmed
watermark     Watermark: an offset that only grows; any thread reads it
gate          two threads: one opens, the other waits; for watermark
flush_times   histogram of fdatasync
own_record    is_own_record: whether a record is the record of a queue entry
queue_tail    QueueTail: the end of one queue in memory
queue_file    queue files, opened for a flush or for a look
waiters       who becomes ready when a queue gets an entry, for held pulls
dispatch      queue entries for records of the log: starts and slaves
scan          queue entries for a pull; records for recovery
index_file    IndexFile: one index file
new_keys      NewKeys: keys of appended records on their way to the index
timer_units   units of the timer log
"""
