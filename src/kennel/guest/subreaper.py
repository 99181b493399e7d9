"""Owns the process between PID 1 and a command: it starts the command, adopts its orphans, reports exact statuses.

Forked by pool, one per running command or session, used again once it has no child left. Invariant: it speaks only
when something happened (`STARTED`, `FAILED`, `EXITED`, `IDLE`), and `IDLE` is the kernel's word (ECHILD) that nothing
of the command is left.
"""

from __future__ import annotations

import gc
import marshal
import os
import time
from errno import EACCES, EAGAIN, ELOOP, ENAMETOOLONG, ENOENT, ENOEXEC, ENOTDIR

from . import native
from .launch import SH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from .launch import Identity, Job

STARTED, FAILED, EXITED, IDLE = 1, 2, 3, 4
CWD, EXEC, USER = 1, 2, 3
"""What failed, in a FAILED report."""
INLINE = 64 * 1024
"""A job up to this size travels in the message, a larger one in a memory file beside it."""
_OOM_COMMAND = b"500"
_PATIENCE = 15.0
"""Seconds in which a process may still be made where there is no room for one, as many as bash gives it: a felled fork
bomb of a thousand needs 5 s of a lite pet's CPU to die, and holds the limit until then."""
_NEXT = frozenset((ENOENT, ENOTDIR, EACCES, ENAMETOOLONG, ELOOP))


def serve(sock: native.Socket, keep: int) -> NoReturn:
    """The whole life of a subreaper; `keep` is the descriptor of `sock`, every other one is closed."""
    try:
        os.closerange(3, keep)
        os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
        gc.disable()
        native.forget_children()
        native.become_subreaper()
        native.stay_in_line()
        score = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        usual = os.read(score, 16).strip()
        while True:
            message, fds = native.receive_descriptors(sock, INLINE + 16, 4)
            if not message:
                break
            job = _job(message, fds)
            _carry_out(sock, job, fds, score, usual)
    finally:
        os._exit(0)


def _job(message: bytes, fds: list[int]) -> Job:
    if len(fds) > 3:
        with os.fdopen(fds.pop(), "rb") as spilled:
            message = spilled.read()
    job: Job = marshal.loads(message)
    return job


def _report(sock: native.Socket, *words: int) -> None:
    sock.send(marshal.dumps(words), native.MSG_NOSIGNAL)


def _carry_out(sock: native.Socket, job: Job, fds: list[int], score: int, usual: bytes) -> None:
    """Starts the command, then waits until nothing of it is left."""
    os.pwrite(score, _max_score(usual), 0)
    try:
        main = _start(job, fds)
    except _Failure as failure:
        _report(sock, FAILED, failure.stage, failure.number)
        main = 0
    finally:
        os.pwrite(score, usual, 0)
        for fd in fds:
            os.close(fd)
    if main > 0:
        _report(sock, STARTED, main)
    elif main < 0:
        _report(sock, EXITED, 0, -main << 8)
    _outlive(sock, main)


def _outlive(sock: native.Socket, main: int) -> None:
    """Reaps until nothing is left; the last report and IDLE share a message in the usual case of no orphans."""
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        if pid == main:
            if not _childless():
                _report(sock, EXITED, main, status)
                continue
            _report(sock, EXITED, main, status, IDLE)
            return
    _report(sock, IDLE)


def _childless() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _max_score(usual: bytes) -> bytes:
    return _OOM_COMMAND if int(usual) < int(_OOM_COMMAND) else usual


class _Failure(Exception):
    def __init__(self, stage: int, number: int) -> None:
        super().__init__()
        self.stage = stage
        self.number = number


def _start(job: Job, fds: list[int]) -> int:
    """The pid of the command; minus its exit code when the shell's rules give it one without a process."""
    files, words, env, cwd, identity = job
    if identity is not None:
        return _start_as(job, identity, fds)
    try:
        os.chdir(cwd)
    except OSError as problem:
        raise _Failure(CWD, problem.errno or 0) from None
    moves: list[Any] = [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(fds)]
    if os.isatty(fds[0]):
        # The first terminal that the leader of a session opens becomes the controlling one.
        moves.append((os.POSIX_SPAWN_OPEN, 0, os.ttyname(fds[0]), os.O_RDWR, 0))
    worst = ENOENT
    for file in files:
        try:
            return _when_there_is_room(_spawn, file, words, env, moves)
        except OSError as problem:
            if problem.errno not in _NEXT:
                raise _Failure(EXEC, problem.errno or 0) from None
            if problem.errno == EACCES and os.path.lexists(file):
                worst = EACCES
    return -_without_program(words[0], worst, fds[2])


def _when_there_is_room(make: Callable[..., int], *args: Any) -> int:
    """The process that `make` makes, asked again while the limit of processes forbids one."""
    pause, until = 0.01, time.monotonic() + _PATIENCE
    while True:
        try:
            return make(*args)
        except OSError as problem:
            if problem.errno != EAGAIN or time.monotonic() >= until:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 0.5)


def _spawn(file: bytes, words: tuple[bytes, ...], env: dict[bytes, bytes], moves: list[Any]) -> int:
    try:
        return os.posix_spawn(
            file, words, env, file_actions=moves, setsid=True, setsigmask=(), setsigdef=native.RESET_SIGNALS
        )
    except OSError as problem:
        if problem.errno != ENOEXEC:
            raise
    # A script without a first line that names its interpreter is the shell's, as execvp has it.
    return _spawn(SH.encode(), (b"sh", file, *words[1:]), env, moves)


def _without_program(program: bytes, number: int, stderr: int) -> int:
    """Says on the command's standard error why there is no such program; the shell's exit code for it."""
    why, code = (b"Permission denied", 126) if number == EACCES else (b"command not found", 127)
    try:
        os.write(stderr, b"kennel: %s: %s\n" % (program[:200], why))
    except OSError:
        return code  # its reader is gone already
    return code


def _start_as(job: Job, identity: Identity, fds: list[int]) -> int:
    """Starts the command as another user: a fork, since posix_spawn cannot change who it is."""
    told, tell = os.pipe()
    try:
        pid = _when_there_is_room(os.fork)
    except OSError as problem:
        os.close(told)
        os.close(tell)
        raise _Failure(EXEC, problem.errno or 0) from None
    if pid == 0:
        try:
            stage, number = _become(job, identity, fds)
            os.write(tell, marshal.dumps((stage, number)))
        finally:
            os._exit(127)
    os.close(tell)
    with os.fdopen(told, "rb") as answer:
        words = answer.read(64)
    if words:
        os.waitpid(pid, 0)
        raise _Failure(*marshal.loads(words))
    return pid


def _become(job: Job, identity: Identity, fds: list[int]) -> tuple[int, int]:
    """Turns the forked child into the command; comes back only with what failed and its errno."""
    files, words, env, cwd, _ = job
    uid, gid, groups = identity
    try:
        os.setsid()
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as problem:
        return USER, problem.errno or 0
    try:
        os.chdir(cwd)
    except OSError as problem:
        return CWD, problem.errno or 0
    for at, fd in enumerate(fds):
        os.dup2(fd, at)
    if os.isatty(0):
        native.take_terminal(0)
    native.default_signals()
    worst = ENOENT
    for file in files:
        number = _replace(file, words, env)
        if number not in _NEXT:
            return EXEC, number
        if number == EACCES and os.path.lexists(file):
            worst = EACCES
    os._exit(_without_program(words[0], worst, 2))


def _replace(file: bytes, words: tuple[bytes, ...], env: dict[bytes, bytes]) -> int:
    """The errno of an execve that did not work."""
    try:
        os.execve(file, words, env)
    except OSError as problem:
        if problem.errno == ENOEXEC and file != SH.encode():
            return _replace(SH.encode(), (b"sh", file, *words[1:]), env)
        return problem.errno or 0
