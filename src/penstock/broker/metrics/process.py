"""These functions report what the operating system knows of this process, and None where it says nothing."""

import os
import resource
import time


def resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return None


def cpu_seconds() -> float:
    """Processor time of all threads, in user and system mode."""
    return time.process_time()


def open_descriptors() -> int | None:
    try:
        # Linux reports the number as the size of the folder from 6.2 on; before, all of them have to be listed.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return None


def max_descriptors() -> float:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if soft == resource.RLIM_INFINITY else soft
