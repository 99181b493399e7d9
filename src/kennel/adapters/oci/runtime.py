"""Owns driving an OCI runtime's binary: run, find, delete, list, and the probe that says whether it works here.

Called by node through ports.runtime; implements it for runc and crun, whose command lines are the same for these
verbs. Invariant: every run of the binary has a deadline, its standard error is never a pipe (`run --detach` would not
return: the container keeps the pipe open), and the container's own output goes to /dev/null, not to the host's disk.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from kennel.adapters.oci.bundle import config, probe_config
from kennel.adapters.oci.confinement import RLIMITS
from kennel.domain.container import ContainerSpec, RuntimeFinding
from kennel.steps import step
from kennel.wire.errors import error

log = logging.getLogger("kennel.oci")

DEADLINE = 30.0
GUEST_DESCRIPTOR = 3

_PID_FIELDS = {"runc": ("state.json", "init_process_pid", "init_process_start"), "crun": ("status", "pid", None)}


class OciRuntime:
    """runc or crun with a state folder of Kennel's own."""

    def __init__(self, name: str, state: Path) -> None:
        self.name = name
        self._binary = shutil.which(name) or f"/usr/sbin/{name}"
        self._state = state
        state.mkdir(parents=True, exist_ok=True, mode=0o700)

    def run(self, spec: ContainerSpec, listener: int) -> int:
        """Starts the container; the host pid of its PID 1. Raises SANDBOX_START_FAILED with the runtime's words."""
        bundle = Path(spec.bundle)
        pid_file, journal = bundle / "pid", bundle / "runtime.log"
        with step("write bundle"):
            bundle.mkdir(exist_ok=True, mode=0o700)
            (bundle / "config.json").write_text(json.dumps(config(spec, hard_limits())))
            for stale in (pid_file, journal):
                stale.unlink(missing_ok=True)
        words = [self._binary, "--root", str(self._state), "--log", str(journal), "--log-format", "json"]
        words += ["run", "--detach", "--preserve-fds", "1", "--pid-file", str(pid_file), "--bundle", str(bundle)]
        with step("run container"):
            status = _spawn([*words, spec.container], listener)
        if status != 0:
            raise error("SANDBOX_START_FAILED", f"{self.name}: {_last_words(journal, status)}", admitted="no")
        return int(pid_file.read_text())

    def pid(self, container: str) -> int | None:
        """Read from the runtime's own state file: asking the binary costs 12 ms, this 0.05."""
        file, pid_field, start_field = _PID_FIELDS[self.name]
        try:
            state = json.loads((self._state / container / file).read_text())
            pid = int(state[pid_field])
            stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, ValueError, KeyError):
            return None
        dead = stat[0] in "ZX"
        reused = start_field is not None and int(stat[19]) != int(state.get(start_field, 0))
        return None if dead or reused else pid

    def delete(self, container: str) -> None:
        """Kills and forgets; a container that is not there is success."""
        if not (self._state / container).exists():
            return
        with step("kill container"):
            self._kill(container)
        words = [self._binary, "--root", str(self._state), "delete", "--force", container]
        try:
            with step("delete container"):
                done = subprocess.run(
                    words, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE, check=False
                )
        except subprocess.TimeoutExpired as late:
            raise error("SANDBOX_START_FAILED", f"{self.name} delete took more than {DEADLINE:g} s") from late
        if (self._state / container).exists():
            if done.returncode == 0:
                with step("delete container state"):
                    # A state folder cut short by a crash: the runtime skips it.
                    shutil.rmtree(self._state / container)
                return
            raise error("SANDBOX_START_FAILED", f"{self.name} delete: {done.stderr.decode(errors='replace').strip()}")

    def _kill(self, container: str) -> None:
        """Ends PID 1 and waits for it; `delete --force` alone sleeps in steps of 100 ms."""
        pid = self.pid(container)
        if pid is not None:
            pidfd = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                ended = select.poll()
                ended.register(pidfd, select.POLLIN)
                ended.poll(DEADLINE * 1000)
            except ProcessLookupError:
                log.debug("%s ended by itself", container)
            finally:
                os.close(pidfd)
        self._reap(container)

    def _reap(self, container: str) -> None:
        """Collects PID 1 if it is a child of this process (node is a subreaper); another parent collects it itself."""
        file, field, _ = _PID_FIELDS[self.name]
        try:
            os.waitpid(int(json.loads((self._state / container / file).read_text())[field]), os.WNOHANG)
        except (OSError, ValueError, KeyError) as nothing:
            log.debug("nothing to collect of %s: %s", container, nothing)

    def list(self) -> list[str]:
        return sorted(path.name for path in self._state.iterdir() if path.is_dir())

    def probe(self) -> RuntimeFinding:
        """Runs `true` in a container with every wall Kennel uses; what came of it."""
        if not os.path.exists(self._binary):
            return RuntimeFinding(self.name, False, None, "not installed", f"apt-get install {self.name}")
        text = subprocess.run(
            [self._binary, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
        version = text.splitlines()[0].removeprefix(f"{self.name} version ").strip() if text else None
        try:
            reason = self._try()
        except (OSError, subprocess.SubprocessError) as failure:
            reason = str(failure)
        remedy = None if reason is None else "use another runtime, or upgrade this one"
        return RuntimeFinding(self.name, reason is None, version, reason, remedy)

    def _try(self) -> str | None:
        container = f"probe{os.getpid()}{time.monotonic_ns() % 10**6}"
        with tempfile.TemporaryDirectory(prefix="kennel-probe-") as folder:
            root, journal = Path(folder, "root"), Path(folder, "log")
            os.chmod(folder, 0o711)
            for part in ("bin", "usr", "lib", "lib64", "proc", "dev", "sys"):
                (root / part).mkdir(parents=True)
            Path(folder, "config.json").write_text(json.dumps(probe_config(str(root), hard_limits())))
            words = [self._binary, "--root", str(self._state), "--log", str(journal), "--log-format", "json", "run"]
            done = subprocess.run(
                [*words, "--bundle", folder, container],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=DEADLINE,
                check=False,
            )  # fmt: skip
            self.delete(container)
            return None if done.returncode == 0 else _last_words(journal, done.returncode)


def hard_limits() -> dict[str, int]:
    """This process's own hard limits by their names; -1 is none. What it starts cannot have more."""
    return {name: resource.getrlimit(getattr(resource, name))[1] for name in RLIMITS}


def _spawn(words: list[str], listener: int) -> int:
    """Runs the runtime with `listener` as descriptor 3 and nothing else; its exit status."""
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
        actions.append((os.POSIX_SPAWN_DUP2, listener, GUEST_DESCRIPTOR))
        pid = os.posix_spawn(words[0], words, dict(os.environ), file_actions=actions)
    finally:
        os.close(null)
    pidfd = os.pidfd_open(pid)
    try:
        waiting = select.poll()
        waiting.register(pidfd, select.POLLIN)
        if not waiting.poll(DEADLINE * 1000):
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(pidfd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _last_words(journal: Path, status: int) -> str:
    """The runtime's last error, from its JSON log."""
    try:
        lines = [json.loads(line) for line in journal.read_text().splitlines() if line.startswith("{")]
    except (OSError, ValueError):
        lines = []
    errors = [line["msg"] for line in lines if line.get("level") in ("error", "fatal")]
    if not errors and status == -signal.SIGKILL:
        return f"did not start within {DEADLINE:g} s"
    return errors[-1] if errors else f"exit status {status}"
