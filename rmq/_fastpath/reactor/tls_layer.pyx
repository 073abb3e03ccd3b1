"""TlsLayer: encrypts one connection of the reactor, by Python's own `ssl`.

    record      type u8 | version u16 | size u16, at most 18,432 | that many bytes

An `ssl.SSLObject` reads records from one `ssl.MemoryBIO` and writes them to another.
The layer counts the whole records that it feeds: each gives one `read`. A `read`
without a record would raise an exception, which costs more than a small record.

`ssl` releases the GIL in each call. The reactor calls `decrypt_records` before it
serves the first frame of a poll, and `encrypt_records` after the end of the batch. So
other threads see the store as they see it between two polls.

Limits: a portion has PORTION_BYTES, and a BIO grows little beyond it. A record of at
most SMALL_RECORD bytes ends its portion. Some of them contain no data, and a change of
keys costs as much as ten other records. A peer may send EMPTY_LIMIT records without
data, and one more for each DATA_PER_EMPTY with data. OpenSSL has limits of its own for
alerts and for empty records in a row.
Belongs to the reactor; the handshake is over before.
"""

from ssl import SSLWantReadError

cimport cython
from cpython.exc cimport PyErr_SetInterrupt
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from rmq._fastpath.bytes.endian cimport get16
from rmq._fastpath.reactor.buffers cimport Buffer

cdef enum:
    HEADER_SIZE = 5
    PORTION_BYTES = 8 * 1024
    PLAIN_SIZE = 16 * 1024      # bytes of the largest record
    SMALL_RECORD = 64
    SMALL_SHARE = 8             # a receive with more than one in so many has small ones
    EMPTY_LIMIT = 16
    DATA_PER_EMPTY = 64


@cython.final
cdef class Span:
    """Bytes in memory of the caller, for `ssl` to read or write in one call.

    One object for all calls of a layer: a memoryview for each costs 0.2 µs.
    """

    cdef Span point_to(self, const uint8_t *start, int64_t size):
        """Return this object, which now is these bytes."""
        self.start = <uint8_t *>start
        self.size = size
        return self

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.size, False, flags)


@cython.final
cdef class TlsLayer:
    """One encrypted connection after its handshake."""

    def __cinit__(self, ssl_object not None, incoming not None, outgoing not None):
        """`incoming` and `outgoing` are the BIOs of `ssl_object`."""
        self.ssl_object = ssl_object
        # its C object, if this Python has it: a frame of Python for each record less
        c_object = getattr(ssl_object, "_sslobj", ssl_object)
        self.span = Span.__new__(Span)
        self.into_span = (PLAIN_SIZE, self.span)
        self.read = c_object.read
        self.write = c_object.write
        self.feed = incoming.write
        self.take = outgoing.read
        self.rest = incoming.read()
        self.error = ""

    @property
    def selected_protocol(self):
        """The protocol that the handshake selected, or None."""
        return self.ssl_object.selected_alpn_protocol()

    cdef int64_t partial_size(self) noexcept nogil:
        """Return how many bytes have come of the record that is not whole yet."""
        if self.header_size < HEADER_SIZE:
            return self.header_size
        return HEADER_SIZE + self.record_size - self.record_left

    cdef TlsState decrypt_records(
        self, const uint8_t *data, int64_t size, Buffer *inbox
    ) noexcept with gil:
        """Append the data of the whole records to the inbox.

        The inbox has room for `size` and for `partial_size` bytes.
        """
        cdef int64_t done = 0, portion
        cdef int64_t small = self.small_records, records = self.data_records
        cdef int32_t whole = 0
        cdef TlsState state = TLS_OPEN
        try:
            while done < size and state == TLS_OPEN:
                portion = self.next_portion(data + done, size - done, &whole)
                if portion < 0:
                    self.error = "a record is longer than TLS allows"
                    return TLS_BROKEN
                self.feed(self.span.point_to(data + done, portion))
                done += portion
                state = self.read_records(whole, inbox)
        except Exception as error:
            self.has_output = True      # the alert
            self.error = str(error)
            return TLS_BROKEN
        except BaseException:
            _raise_later(self)
            return TLS_BROKEN
        small = self.small_records - small
        self.has_small_records = (
            SMALL_SHARE * small > self.data_records - records + small
        )
        return state

    cdef int64_t next_portion(
        self, const uint8_t *data, int64_t size, int32_t *records
    ) noexcept nogil:
        """Return the size of the next portion, and count the records that end in it.

        -1 if a record is longer than TLS allows.
        """
        cdef int64_t at = 0, part
        records[0] = 0
        while at < size:
            if self.header_size < HEADER_SIZE:
                self.header[self.header_size] = data[at]
                self.header_size += 1
                at += 1
                if self.header_size < HEADER_SIZE:
                    continue
                self.record_size = self.record_left = get16(self.header + 3)
                if self.record_size > RECORD_SIZE - HEADER_SIZE:
                    return -1
            part = min(<int64_t>self.record_left, size - at)
            self.record_left -= <int32_t>part
            at += part
            if self.record_left == 0:
                self.header_size = 0
                records[0] += 1
                if self.record_size <= SMALL_RECORD:
                    self.small_records += 1
                    break
                if at >= PORTION_BYTES:
                    break
        return at

    cdef TlsState read_records(self, int32_t records, Buffer *inbox):
        """Append the data of `records` whole records, which were fed, to the inbox."""
        cdef int64_t got
        while records > 0:
            try:
                self.span.point_to(inbox.data + inbox.end, inbox.capacity - inbox.end)
                got = self.read(*self.into_span)
            except SSLWantReadError:
                self.has_output = True
                self.empty_records += records
                if self.empty_records > (
                    EMPTY_LIMIT + self.data_records // DATA_PER_EMPTY
                ):
                    return TLS_ABUSED
                return TLS_OPEN
            if got == 0:
                return TLS_CLOSED
            inbox.end += got
            self.data_records += 1
            records -= 1
        return TLS_OPEN

    cdef int64_t encrypt_records(
        self, const uint8_t *plain, int64_t size, uint8_t *out
    ) noexcept with gil:
        """Write `size` bytes, at most SEAL_BYTES, as records to `out`.

        Returns the size of the records, -1 after an error. `out` has RECORDS_BYTES.
        """
        cdef int64_t done = 0, written = 0, part
        cdef bytes records
        try:
            while done < size:
                part = min(size - done, <int64_t>PLAIN_SIZE)
                done += <int64_t>self.write(self.span.point_to(plain + done, part))
                records = self.take()
                assert written + len(records) <= RECORDS_BYTES
                memcpy(out + written, <const char *>records, len(records))
                written += len(records)
        except Exception as error:
            self.error = str(error)
            return -1
        except BaseException:
            _raise_later(self)
            return -1
        self.has_output = False
        return written

    cdef int64_t take_output(self, uint8_t *out) noexcept with gil:
        """Copy the control records that wait to `out`; return their size.

        At most RECORDS_BYTES: the limit of records without data keeps them far below.
        """
        cdef bytes records
        self.has_output = False
        try:
            records = self.take(RECORDS_BYTES)
            memcpy(out, <const char *>records, len(records))
            return len(records)
        except Exception as error:      # no memory: the peer may miss the records
            self.error = str(error)
        except BaseException:
            _raise_later(self)
        return 0

    cdef int64_t close_notify(self, uint8_t *out) noexcept with gil:
        """Write the records that end the connection to `out`; return their size."""
        try:
            self.ssl_object.unwrap()
        except Exception:
            pass        # the peer's own has not come yet, or the connection is broken
        except BaseException:
            _raise_later(self)
        return self.take_output(out)


cdef void _raise_later(TlsLayer layer):
    """Let the program raise its signal after the call that it interrupted."""
    PyErr_SetInterrupt()
    layer.error = "interrupted"
