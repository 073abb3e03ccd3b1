"""Bytes and numbers: encodings, checksums, hashes and system calls.

Bottom room: it cimports nothing of the others, and every room may use it.

ascii         literals and decimal numbers: compare, read, write
checksum      CRC-32 of bodies
crc32.h       the same with carry-less multiplication, for checksum
endian        big-endian loads and stores
find_byte     the next byte of a value, for scans of properties
hashing       Java's `String.hashCode`, tags codes
hmac_sha1.h   HMAC-SHA1, for reactor/signatures
io_trace.h    events of the traced build, for the tests of power cuts
json_dialect  fastjson's JSON to standard JSON, for rmq.protocol
name_table    hash table by names without Python objects, for handlers' tables
prefetch      loads of a cache line ahead of its use
properties    text of a message's properties to a dict and back
selector      SQL92 expressions over the text of properties, for pulls and rmq.filters
syscalls      epoll, eventfd, sockets and clock, for log and reactor
unique_keys   UNIQ_KEY of messages, for brokers and clients
utf8          well-formed UTF-8
"""
