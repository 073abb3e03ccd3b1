"""Learned header templates: a client's next header differs only in a few values.

After the scanner has read a JSON header, its bytes are kept with the places of the
values that vary.  Another header matches if everything between these places is the same
and each place holds a value that the scanner would read there; then it means the same,
with those values.  What does not match goes to the scanner.
Binary headers are cheap to scan and are not learned.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from rmq._fastpath.header_scan cimport (
    RawHeader,
    scan_header,
    scan_integer,
    scan_number,
    scan_string,
)
from rmq._fastpath.native cimport Frame, Text

cdef enum:
    TEMPLATE_SIZE_LIMIT = 2000


cdef void forget_headers(LearnedHeaders *known) noexcept nogil:
    """Free what a connection has taught."""
    cdef int32_t i
    for i in range(TEMPLATES_PER_CONNECTION):
        free(known.templates[i])
        known.templates[i] = NULL
    known.learned = known.matched = 0


cdef Template *learn_template(
    const uint8_t *header,
    int64_t size,
    const RawHeader *raw,
    const Frame *frame,
    int32_t field_count,
    const int32_t *varying,
    int32_t varying_count,
    void *owner,
) noexcept nogil:
    """Keep a JSON header that was scanned into `frame`; NULL if it cannot be kept."""
    cdef Template *template
    cdef Hole hole
    cdef const Text *text
    cdef int32_t i, j
    if size > TEMPLATE_SIZE_LIMIT or raw.opaque_text == NULL:
        return NULL
    if varying_count >= HOLE_LIMIT:
        return NULL
    template = <Template *>malloc(sizeof(Template) + size)
    if template == NULL:
        return NULL
    memcpy(template.header, header, size)
    template.size = <int32_t>size
    template.owner = owner
    template.frame = frame[0]
    template.field_count = field_count
    template.hole_count = 0
    for i in range(field_count):
        if frame.fields[i].data != NULL:
            template.frame.fields[i].data = (
                template.header + (frame.fields[i].data - header)
            )
    for i in range(varying_count + 1):
        if i == varying_count:
            hole.start = <int32_t>(raw.opaque_text - header)
            hole.end = hole.start + raw.opaque_size
            hole.field = OPAQUE_HOLE
        else:
            text = &frame.fields[varying[i]]
            if text.data == NULL:
                continue
            hole.start = <int32_t>(text.data - header)
            hole.end = hole.start + text.size
            hole.field = varying[i]
        j = template.hole_count
        while j > 0 and template.holes[j - 1].start > hole.start:
            template.holes[j] = template.holes[j - 1]
            j -= 1
        template.holes[j] = hole
        template.hole_count += 1
    return template


cdef bint match_template(
    const Template *template, const uint8_t *header, int64_t size, Frame *frame
) noexcept nogil:
    """Read a header that is like the learned one; False if it is not."""
    cdef const uint8_t *p = header
    cdef const uint8_t *end = header + size
    cdef const Hole *hole
    cdef int32_t i, run, known = 0
    cdef int32_t opaque = 0
    cdef Text values[HOLE_LIMIT]
    for i in range(template.hole_count):
        hole = &template.holes[i]
        run = hole.start - known
        if end - p < run or memcmp(p, template.header + known, run) != 0:
            return False
        p += run
        if hole.field == OPAQUE_HOLE:
            p = scan_integer(p, end, &opaque)
        elif template.header[hole.start - 1] != 34:
            p = scan_number(p, end, &values[i])
        else:
            p = scan_string(p, end, &values[i])
            if p != NULL:
                p -= 1          # the closing quote belongs to the next run
        if p == NULL:
            return False
        known = hole.end
    run = template.size - known
    if end - p != run or memcmp(p, template.header + known, run) != 0:
        return False
    frame.code = template.frame.code
    frame.flag = template.frame.flag
    frame.version = template.frame.version
    frame.language = template.frame.language
    frame.serialize_type = template.frame.serialize_type
    frame.opaque = opaque
    memcpy(
        frame.fields, template.frame.fields, template.field_count * sizeof(Text)
    )
    for i in range(template.hole_count):
        if template.holes[i].field != OPAQUE_HOLE:
            frame.fields[template.holes[i].field] = values[i]
    return True


cdef class Templates:
    """One learned header at a time, for tests and benchmarks."""

    cdef tuple names
    cdef list varying
    cdef Template *template

    def __init__(self, tuple names not None, tuple varying not None):
        self.names = tuple([name.encode() for name in names])
        self.varying = [names.index(name) for name in varying]

    def __dealloc__(self):
        free(self.template)

    def read(self, bytes header not None):
        """Return (was it recognised, opaque, values by name), or None if not plain."""
        cdef Frame frame
        cdef RawHeader raw
        cdef int32_t varying[HOLE_LIMIT]
        cdef int32_t i, j
        cdef int32_t count = <int32_t>len(self.names)
        cdef bint is_known = self.template != NULL and match_template(
            self.template, header, len(header), &frame
        )
        if not is_known:
            if not scan_header(header, len(header), 0, &raw):
                return None
            frame.opaque = raw.opaque
            for i in range(count):
                frame.fields[i].data = NULL
                for j in range(raw.field_count):
                    if raw.names[j].data[:raw.names[j].size] == self.names[i]:
                        frame.fields[i] = raw.values[j]
            for i in range(len(self.varying)):
                varying[i] = self.varying[i]
            free(self.template)
            self.template = learn_template(
                header, len(header), &raw, &frame, count,
                varying, <int32_t>len(self.varying), NULL,
            )
        values = {
            self.names[i]: frame.fields[i].data[:frame.fields[i].size]
            for i in range(count)
            if frame.fields[i].data != NULL
        }
        return is_known, frame.opaque, values
