"""Settings of the process that cost nothing and speed every update up."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Let glibc reuse the memory of freed tensors instead of handing it back to the system; false on other systems.

    By default every tensor above 128 KiB is a fresh mapping, and touching its pages for the first time costs as much
    as computing on it.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return False
    return bool(libc.mallopt(_M_MMAP_THRESHOLD, 2**30) and libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
