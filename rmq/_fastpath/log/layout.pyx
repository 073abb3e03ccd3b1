"""Offsets, sizes and magic codes of what is stored (declared in layout.pxd)."""
