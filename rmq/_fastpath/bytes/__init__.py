"""Bytes, texts, checksums, hash tables and system calls."""
