"""What this machine has, asked of the system."""

import contextlib
import glob
import os
import re


def cores():
    """That this program may use."""
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def first_cores(count):
    """This program and those that it starts on so many of its cores, which the block gets as taskset
    writes them. A tree recovers with as many threads."""
    mine = os.sched_getaffinity(0)
    some = sorted(mine)[:count]
    os.sched_setaffinity(0, some)
    try:
        yield ",".join(map(str, some))
    finally:
        os.sched_setaffinity(0, mine)


def threads(most):
    """Numbers of threads to run with: 1, 2, 4 and so on, up to the cores that there are, or `most`."""
    top = max(1, min(cores(), most))
    return [*(count for count in (1, 2, 4, 8, 16, 32, 64) if count < top), top]


def numa_nodes():
    return max(1, len(glob.glob("/sys/devices/system/node/node[0-9]*")))


def sockets():
    found = set()
    for name in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id"):
        with open(name, encoding="ascii") as file:
            found.add(file.read())
    return max(1, len(found))


def last_cache_mib():
    """Of the first processor; 0 if the system does not say."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size", encoding="ascii") as file:
            size = re.fullmatch(r"(\d+)K\s*", file.read())
    except OSError:
        return 0
    return int(size[1]) // 1024 if size else 0
