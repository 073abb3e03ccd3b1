cpdef enum ScanStop:
    SCAN_END = 0        # the readable entries are used up
    SCAN_FULL = 1       # the message or byte limit
    SCAN_LIMIT = 2      # the number of entries that may be looked at
