"""Owns what the guest takes from the C side of the standard library: signals, sockets, prctl, ioctl.

Called by the guest's own files only. Invariant: nothing here imports `socket`, `signal`, `enum`, `re` or `ctypes`;
their Python halves together cost 8 ms of CPU in every start of a sandbox, the accelerators under them nothing.
"""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found, unused-ignore]
import _socket
import os
import resource
from errno import EPERM
from fcntl import fcntl, ioctl
from struct import Struct

from .framing import SOCKET_BUFFER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGCHLD, SIGCONT, SIGSTOP = 1, 2, 9, 13, 15, 17, 18, 19
LAST_SIGNAL = 64
_UNCATCHABLE = (SIGKILL, SIGSTOP, 32, 33)  # 32 and 33 belong to the C library
RESET_SIGNALS = tuple(n for n in range(1, LAST_SIGNAL + 1) if n not in _UNCATCHABLE)
"""Signals whose default action every command starts with."""
_FAULTS = (4, 5, 7, 8, 11)  # a fault of our own must end us, not spin

SOL_SOCKET, SCM_RIGHTS = 1, 1
_SO_ERROR, _IPPROTO_TCP, _TCP_NODELAY, _SHUT_WR = 4, 6, 1, 1
_TIOCSCTTY = 0x540E
MSG_DONTWAIT, MSG_NOSIGNAL, MSG_CMSG_CLOEXEC = 0x40, 0x4000, 0x40000000
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NAME = 4, 36, 15
_FIONREAD, _F_SETPIPE_SZ = 0x541B, 1031
_I32 = Struct("<i")
_BACKLOG = 256
_USUAL_NICE, _KILLING_NICE = -5, -20
BIG_PIPE = 1024 * 1024

Socket = _socket.socket
_libc = _ctypes.dlopen(None, 2)  # type: ignore[arg-type, unused-ignore]
_prctl_at = _ctypes.dlsym(_libc, "prctl")
_setfsuid_at, _setfsgid_at = _ctypes.dlsym(_libc, "setfsuid"), _ctypes.dlsym(_libc, "setfsgid")
_NOBODY = 0xFFFFFFFF


def _prctl(option: int, value: int) -> None:
    if _ctypes.call_function(_prctl_at, (option, value, 0, 0, 0)) != 0:
        raise OSError(f"prctl({option}) refused")


def file_identity(uid: int, gid: int) -> None:
    """Whose rights this process's file accesses have from now on; PermissionError when the kernel refuses."""
    for change, wanted in ((_setfsgid_at, gid), (_setfsuid_at, uid)):
        _ctypes.call_function(change, (wanted,))
        # Neither call reports failure; setting an impossible id changes nothing and answers with the current one.
        if _ctypes.call_function(change, (_NOBODY,)) & _NOBODY != wanted:
            raise PermissionError(EPERM, os.strerror(EPERM))


def not_dumpable() -> None:
    """Closes this process's memory and descriptors to every other process of the sandbox."""
    _prctl(_PR_SET_DUMPABLE, 0)


def become_subreaper() -> None:
    """From now on every orphan below this process becomes its child."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def ignore_signals() -> None:
    """Nothing a program sends can end this process, apart from SIGKILL outside of PID 1."""
    for number in RESET_SIGNALS:
        if number not in _FAULTS and number != SIGCHLD:
            _signal.signal(number, _signal.SIG_IGN)


def on_child(wake: int, handler: Callable[[int, Any], None]) -> None:
    """SIGCHLD writes a byte to the descriptor `wake` (non-blocking) and then calls `handler`."""
    _signal.signal(SIGCHLD, handler)
    _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)


def forget_children() -> None:
    """Undoes `on_child` in a process that was just forked."""
    _signal.set_wakeup_fd(-1)
    _signal.signal(SIGCHLD, _signal.SIG_DFL)


def default_signals() -> None:
    """What a command expects to find when it starts; for a child that is about to exec."""
    for number in RESET_SIGNALS:
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def first_in_line() -> None:
    """Asks to run before every program of the sandbox, for as long as something is killed."""
    _renice(_KILLING_NICE)


def back_in_line() -> None:
    """Runs a little before the programs of the sandbox, as always."""
    _renice(_USUAL_NICE)


def _renice(nice: int) -> None:
    """Needs RLIMIT_NICE, goes on without.

    Among two thousand processes of a fork bomb an equal waits ten seconds for its turn, and cannot end it. More than a
    little all the time would triple the 95th percentile of a short exec.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except OSError:
        return


def stay_in_line() -> None:
    """Gives up, for this process and what it starts, to ever run before others."""
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    resource.setrlimit(resource.RLIMIT_NICE, (0, 0))


def readable(fd: int) -> int:
    """The bytes that lie in a pipe right now."""
    return int(_I32.unpack(ioctl(fd, _FIONREAD, b"\0\0\0\0"))[0])


def widen(fd: int) -> None:
    """Asks for a pipe of 1 MiB; where the user's share of pipe memory is used up it stays as it is."""
    try:
        fcntl(fd, _F_SETPIPE_SZ, BIG_PIPE)
    except OSError:
        return


def socketpair() -> tuple[Socket, Socket]:
    """Two ends that keep message boundaries, closed on exec."""
    left, right = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    return left, right


def listener(fd: int) -> Socket:
    """The listening socket that was handed over as descriptor `fd`, non-blocking and closed on exec."""
    os.set_inheritable(fd, False)
    os.set_blocking(fd, False)
    return Socket(fileno=fd)


def accept(sock: Socket) -> int:
    """The descriptor of the next connection, non-blocking; BlockingIOError when there is none."""
    fd, _ = sock._accept()  # type: ignore[attr-defined, unused-ignore]
    taken = Socket(fileno=fd)
    taken.setblocking(False)
    taken.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, SOCKET_BUFFER)
    return taken.detach()


def connecting(host: str, port: int) -> Socket | None:
    """A socket on its way to a port of this sandbox, non-blocking; None when that is hopeless."""
    sock = Socket(_socket.AF_INET6 if ":" in host else _socket.AF_INET, _socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect((host, port))
    except BlockingIOError:
        return sock
    except OSError:
        sock.close()
        return None
    return sock


def local_listener(path: str) -> Socket:
    """A Unix socket that listens at a path, for whoever is given its descriptor."""
    sock = Socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        sock.bind(path)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def local(path: str) -> Socket | None:
    """A connection to the Unix socket at a path, non-blocking; None when nobody listens or its queue is full."""
    sock = Socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        return None
    return sock


def socket_error(sock: Socket) -> int:
    """The errno a connection failed with; 0 when it stands."""
    return int(sock.getsockopt(SOL_SOCKET, _SO_ERROR))


def no_delay(sock: Socket) -> None:
    """What is written leaves at once; a Unix socket knows no delay."""
    if sock.family != _socket.AF_UNIX:
        sock.setsockopt(_IPPROTO_TCP, _TCP_NODELAY, 1)


def no_more(sock: Socket) -> None:
    """The other end sees the end of what we send."""
    try:
        sock.shutdown(_SHUT_WR)
    except OSError:
        return


def take_terminal(fd: int) -> None:
    """Makes a terminal the controlling one of this process's new session."""
    ioctl(fd, _TIOCSCTTY, 0)


def send_descriptors(sock: Socket, data: bytes, fds: list[int]) -> None:
    """One message with descriptors beside it; never blocks."""
    packed = b"".join(_I32.pack(fd) for fd in fds)
    sock.sendmsg([data], [(SOL_SOCKET, SCM_RIGHTS, packed)], MSG_DONTWAIT | MSG_NOSIGNAL)


def receive_descriptors(sock: Socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """The next message and its descriptors (closed on exec); an empty message is the end."""
    data, extra, _, _ = sock.recvmsg(size, _socket.CMSG_SPACE(4 * most), MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, packed in extra:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            fds.extend(_I32.unpack_from(packed, at)[0] for at in range(0, len(packed) // 4 * 4, 4))
    return data, fds
