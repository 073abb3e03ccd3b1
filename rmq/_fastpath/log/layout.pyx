"""Offsets, sizes and magic codes of stored bytes (declared in layout.pxd)."""
