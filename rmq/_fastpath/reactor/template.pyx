"""Learned header templates: a client's next header differs only in a few values.

After the scanner has read a JSON header, the template keeps its bytes with the
positions of the values that vary, the holes. Another header matches if all bytes
between the holes are the same and each hole holds a value that the scanner would read
there. Such a header has the same meaning, with its own values. The scanner reads other
headers. A signed header has one more hole, its signature; `signatures.pyx` has the
signed content. Binary headers are cheap to scan and are not learned.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from rmq._fastpath.reactor.header_scan cimport (
    RawHeader,
    scan_header,
    scan_integer,
    scan_number,
    scan_string,
)
from rmq._fastpath.reactor.native cimport Frame, Text

cdef enum:
    TEMPLATE_SIZE_LIMIT = 2000


cdef void free_templates(LearnedHeaders *known) noexcept nogil:
    """Free the templates of a connection."""
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
    const Text *signature,
    void *owner,
) noexcept nogil:
    """Make a template of a JSON header that was scanned into `frame`, or return NULL.

    `signature` is its value in the header, NULL if it is not signed.
    """
    cdef Template *template
    cdef Text opaque
    cdef const Text *text
    cdef int32_t i
    if size > TEMPLATE_SIZE_LIMIT or raw.opaque_text == NULL:
        return NULL
    if varying_count > VARYING_LIMIT:
        return NULL
    template = <Template *>malloc(
        sizeof(Template) + (size if signature == NULL else 2 * size)
    )
    if template == NULL:
        return NULL
    memcpy(template.header, header, size)
    template.size = <int32_t>size
    template.owner = owner
    template.frame = frame[0]
    template.field_count = field_count
    template.hole_count = 0
    template.is_signed = signature != NULL
    for i in range(field_count):
        if frame.fields[i].data != NULL:
            template.frame.fields[i].data = (
                template.header + (frame.fields[i].data - header)
            )
    for i in range(varying_count):
        text = &frame.fields[varying[i]]
        if text.data != NULL:
            _add_hole(template, header, text, varying[i])
    opaque.data = raw.opaque_text
    opaque.size = raw.opaque_size
    _add_hole(template, header, &opaque, OPAQUE_HOLE)
    if signature != NULL:
        _add_hole(template, header, signature, SIGNATURE_HOLE)
    return template


cdef void _add_hole(
    Template *template, const uint8_t *header, const Text *text, int32_t field
) noexcept nogil:
    """Add a hole for a value; the holes are in the order of the header."""
    cdef int32_t start = <int32_t>(text.data - header)
    cdef int32_t i = template.hole_count
    while i > 0 and template.holes[i - 1].start > start:
        template.holes[i] = template.holes[i - 1]
        i -= 1
    template.holes[i].start = start
    template.holes[i].end = start + text.size
    template.holes[i].field = field
    template.hole_count += 1


cdef int32_t hole_at(const Template *template, int64_t start) noexcept nogil:
    """Return the hole that starts at this position of the learned header, or NO_HOLE.
    """
    cdef int32_t i
    for i in range(template.hole_count):
        if template.holes[i].start == start:
            return i
    return NO_HOLE


cdef bint match_template(
    const Template *template,
    const uint8_t *header,
    int64_t size,
    Frame *frame,
    Text *values,
) noexcept nogil:
    """Read a header that matches the learned header; False for other headers.

    `values` has room for the values of HOLE_LIMIT holes.
    """
    cdef const uint8_t *p = header
    cdef const uint8_t *end = header + size
    cdef const Hole *hole
    cdef int32_t i, run, known = 0
    cdef int32_t opaque = 0
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
        if template.holes[i].field >= 0:
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
        """Return (has matched, opaque, values by name), or None if not plain."""
        cdef Frame frame
        cdef RawHeader raw
        cdef Text values[HOLE_LIMIT]
        cdef int32_t varying[HOLE_LIMIT]
        cdef int32_t i, j
        cdef int32_t count = <int32_t>len(self.names)
        cdef bint is_known = self.template != NULL and match_template(
            self.template, header, len(header), &frame, values
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
                varying, <int32_t>len(self.varying), NULL, NULL,
            )
        found = {
            self.names[i]: frame.fields[i].data[:frame.fields[i].size]
            for i in range(count)
            if frame.fields[i].data != NULL
        }
        return is_known, frame.opaque, found
