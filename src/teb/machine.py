"""The machine's memory: how much there is, and a setting that speeds every update up."""

from __future__ import annotations

import ctypes
import math
import os
from pathlib import Path

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


def memory_bytes() -> tuple[int | None, int | None]:
    """(total, available), within a container's limit; None where the system does not tell."""
    total = available = None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {
            name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)
        }
        total, available = sizes["MemTotal"], sizes.get("MemAvailable")
    except (OSError, ValueError, KeyError):
        try:
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (OSError, ValueError, AttributeError):
            return None, None
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return total, available
    left = max(limit - used, 0)
    return min(total, limit), left if available is None else min(available, left)


def peak_memory() -> float:
    """Bytes that this process held at most; NaN where the system does not tell.

    `ru_maxrss` would also count what held this process's place before it began its program.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return math.nan
    return 1024.0 * int(status.partition("VmHWM:")[2].split()[0])


def available_memory() -> int | None:
    """Bytes that a new run may take; None where the system does not tell."""
    return memory_bytes()[1]
