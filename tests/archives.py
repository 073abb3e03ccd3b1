"""Unpacking golden archives, also on a Python 3.11 that has no filters for that."""

import tarfile

SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
