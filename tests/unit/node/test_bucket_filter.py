"""The filter of s3fs, on a real process: what it refuses, and that threads, programs and the network still work."""

from __future__ import annotations

import subprocess
import sys

_TRY = """
import ctypes, errno, os, socket, subprocess, threading
from kennel.node.buckets import filter
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
filter.install()

def refused(work):
    try:
        work()
    except OSError as failure:
        return failure.errno
    return None

def call(number, *words):
    if libc.syscall(number, *words) < 0:
        raise OSError(ctypes.get_errno(), "")

column = filter._AUDIT[os.uname().machine][0]
print(*(refused(lambda: call(numbers[column], 0, 0, 0, 0, 0)) for numbers in filter._REFUSED.values()))
print(refused(lambda: call(filter._CLONE[column], 0x10000011, 0, 0, 0, 0)))
print(refused(lambda: call(435, 0, 0)))
print(*(refused(lambda: socket.socket(family, kind)) for family, kind in ((17, 3), (40, 1), (38, 5), (29, 3))))
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
    socket.socket(family, socket.SOCK_STREAM).close()
socket.getaddrinfo("localhost", 80)
thread = threading.Thread(target=lambda: print("thread"))
thread.start()
thread.join()
print(subprocess.run(["sh", "-c", "echo program"], capture_output=True, text=True, check=True).stdout, end="")
"""


def test_what_it_refuses_and_what_it_lets_pass() -> None:
    done = subprocess.run([sys.executable, "-c", _TRY], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    refused, clone, clone3, sockets, *rest = done.stdout.splitlines()
    assert set(refused.split()) == {"1"}
    assert len(refused.split()) > 50
    assert (clone, clone3, sockets) == ("1", "38", "1 1 1 1")
    assert rest == ["thread", "program"]
