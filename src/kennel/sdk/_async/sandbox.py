"""Owns the handle on one sandbox: its life, its commands, its settings.

Called by programs through `itx.sandboxes.get(path)`. Invariant: a handle holds a name and nothing else, so it is never
stale; a command is sent once and never repeated; nothing is destroyed by letting a handle go.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kennel.sdk._async.exec_stream import AsyncExecStream
from kennel.sdk._async.files import AsyncFileMethods
from kennel.sdk._async.following import AsyncFollowing
from kennel.sdk._async.git import AsyncGitMethods
from kennel.sdk._async.interpreter import AsyncInterpreterMethods
from kennel.sdk._async.mounts import AsyncMountMethods
from kennel.sdk._async.observation import AsyncLiveState, AsyncProcessor
from kennel.sdk._async.ports import AsyncPortMethods
from kennel.sdk._async.running import LINGER, AsyncRunningMethods
from kennel.sdk._async.session import AsyncSession
from kennel.sdk._async.snapshots import AsyncSnapshotMethods
from kennel.sdk._async.streams import AsyncStream
from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk._async.tunnels import AsyncTunnels
from kennel.sdk.advice import passed_on
from kennel.sdk.answers import SessionList
from kennel.sdk.execution import DEFAULT_MAX_BYTES, exec_body, milliseconds
from kennel.sdk.leave_out import leave_out_words
from kennel.sdk.names import PREFIX, new_request_id, sandbox_name, segment
from kennel.sdk.records import Event
from kennel.sdk.running import Collected
from kennel.wire.results import ExecResult, SandboxView, SnapshotView


class AsyncSandbox(
    AsyncFileMethods,
    AsyncGitMethods,
    AsyncInterpreterMethods,
    AsyncMountMethods,
    AsyncPortMethods,
    AsyncRunningMethods,
    AsyncSnapshotMethods,
):
    """One sandbox, by its path."""

    def __init__(self, transport: AsyncTransport, route: str, name: str) -> None:
        self._transport = transport
        self._route = route
        self.name = name
        self.path = PREFIX + name
        self.stream = AsyncStream(transport, route.rpartition("/sandboxes/")[0], self.path)
        self.processor = AsyncProcessor(transport, route)
        self.live_state = AsyncLiveState(transport, route)
        self.tunnels = AsyncTunnels(transport, route)

    def __repr__(self) -> str:
        return f"AsyncSandbox({self.path!r})"

    async def create(
        self,
        *,
        instance_type: str | None = None,
        image: str | None = None,
        isolation: str | None = None,
        env: Mapping[str, str] | None = None,
        sleep_after: str | int | None = None,
        keep_alive: bool | None = None,
        persist: str | None = None,
        labels: Mapping[str, str] | None = None,
        leave_out: Mapping[str, Any] | None = None,
        points: bool | None = None,
        request_id: str | None = None,
    ) -> AsyncSandbox:
        """Creates it and returns this handle, so that calls chain; SANDBOX_EXISTS when the name is or was in use.

        What is None is the server's to choose (`basic`, `host`, `container`, sleeping after ten idle minutes).
        `sleep_after` is seconds or text such as "10m"; `leave_out` is as in `set_leave_out`, `points` as in
        `set_points`. A lost connection is retried with the same `request_id`, which names this one creation: give your
        own to finish, later or elsewhere, a creation whose end you did not see.
        """
        body = {
            "path": self.path,
            "instanceType": instance_type,
            "image": image,
            "isolation": isolation,
            "env": None if env is None else dict(env),
            "sleepAfter": sleep_after,
            "keepAlive": keep_alive,
            "persist": persist,
            "labels": None if labels is None else dict(labels),
            "leaveOut": None if leave_out is None else leave_out_words(leave_out),
            "points": points,
        }
        given = {key: value for key, value in body.items() if value is not None}
        collection = self._route.rpartition("/")[0]
        made = await self._transport.call(
            "POST", collection, SandboxView, body=given, request_id=request_id or new_request_id()
        )
        passed_on(made)
        return self

    async def info(self) -> SandboxView:
        """What it is and how it is; never wakes it."""
        return await self._transport.call("GET", self._route, SandboxView, repeat=True)

    async def exec(
        self,
        command: str | None = None,
        *,
        argv: Sequence[str] | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        user: str | None = None,
        session_id: str | None = None,
        encoding: str = "utf8",
        max_bytes: int | None = None,
        on_output: Callable[[str, str | bytes], Any] | None = None,
    ) -> ExecResult:
        """Runs a command to its end and returns what it left; wakes a sleeping sandbox first.

        Give `command` (a shell's text) or `argv` (no shell). `timeout` is in seconds; when it runs out the command and
        all it started are killed and the exit code is 124. A non-zero exit is a result, not an exception. `encoding`
        "base64" gives the exact bytes of the output; `max_bytes` is what is kept of each of stdout and stderr.

        `on_output(stream, data)` is called with each piece of output as it comes, bytes with encoding "base64".
        """
        body = exec_body(
            command, argv=argv, cwd=cwd, env=env, stdin=stdin, timeout=timeout, user=user, session_id=session_id,
            encoding=encoding, max_bytes=max_bytes,
        )  # fmt: skip
        if on_output is not None:
            return await self._watched(body, on_output)
        return await self._transport.call("POST", f"{self._route}/exec", ExecResult, body=body, extra=timeout)

    async def _watched(self, body: dict[str, Any], on_output: Callable[[str, str | bytes], Any]) -> ExecResult:
        """The result of a command whose output is told as it comes."""
        most = body.get("maxBytes", DEFAULT_MAX_BYTES)
        collected = Collected(body.get("command") or shlex.join(body["argv"]), most)
        began = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        stream = AsyncExecStream(self._transport, self._route, {**body, "linger": milliseconds(LINGER)})
        async with stream:
            async for event in stream:
                if event.type in ("stdout", "stderr"):
                    data = event.data
                    collected.add(event.type, data if isinstance(data, bytes) else data.encode())
                    on_output(event.type, data)
        assert stream.exit is not None
        return collected.result(stream.exit, body.get("encoding", "utf8"), began)

    async def start(self, *, empty: bool = False) -> SandboxView:
        """Boots it now rather than at its next command; nothing happens when it runs.

        `empty` is the way out when its files cannot be had: it starts with an empty /workspace, beside the backup.
        """
        if not empty:
            return await self._verb("start")
        return await self._transport.call("POST", f"{self._route}/start", SandboxView, body={"empty": True})

    async def fork(
        self,
        path: str,
        snapshot: SnapshotView | str | None = None,
        *,
        instance_type: str | None = None,
        secrets: bool = False,
        request_id: str | None = None,
    ) -> AsyncSandbox:
        """A new sandbox with this one's files, as they are now or as `snapshot` has them, and its environment.

        It is of the same type unless `instance_type` names another. Variables that name secrets are left out unless
        `secrets`.
        """
        made = await self._fork(PREFIX + sandbox_name(path), snapshot, instance_type, secrets, request_id)
        return AsyncSandbox(self._transport, f"{self._route.rpartition('/')[0]}/{made.name}", made.name)

    async def sleep(self) -> SandboxView:
        """Puts it to sleep: its files stay, its processes end."""
        return await self._verb("sleep")

    async def restart(self) -> SandboxView:
        """Stops and boots it again; its files stay."""
        return await self._verb("restart")

    async def kill(self) -> SandboxView:
        """Ends it at once, without waiting for anything in it; what is on its disk stays for the next start."""
        return await self._verb("kill")

    async def renew_activity_timeout(self) -> SandboxView:
        """Counts as use: it will be idle from now on only."""
        return await self._verb("renew")

    renew = renew_activity_timeout

    async def destroy(self) -> None:
        """Ends it for good and retires its name; destroying it twice is fine."""
        await self._transport.call("DELETE", self._route, type(None), repeat=True)

    async def set_env_vars(self, env: Mapping[str, str | None]) -> SandboxView:
        """Sets variables for every command from now on; None unsets one.

        A value that looks like a secret's own is a KennelWarning: `getSecret("/secrets/x")` stays out of the sandbox.
        """
        return passed_on(await self._transport.call("PATCH", f"{self._route}/env", SandboxView, body=dict(env)))

    async def set_sleep_after(self, sleep_after: str | int) -> SandboxView:
        """How long it may be idle before it sleeps: seconds, or text such as "10m"."""
        return await self._change(sleepAfter=sleep_after)

    async def set_keep_alive(self, keep_alive: bool) -> SandboxView:
        """Whether it never sleeps by itself."""
        return await self._change(keepAlive=keep_alive)

    async def set_labels(self, labels: Mapping[str, str]) -> SandboxView:
        """Replaces its labels."""
        return await self._change(labels=dict(labels))

    async def set_leave_out(self, leave_out: Mapping[str, Any]) -> SandboxView:
        """Replaces what its backups and snapshots leave out; an empty mapping is the default again.

        `node_modules` and `gitignore` are booleans, `patterns` a list of texts.
        """
        return await self._change(leaveOut=leave_out_words(leave_out))

    async def set_points(self, points: bool) -> SandboxView:
        """Whether a point is taken before each command, for `rollback(before=…)`."""
        return await self._change(points=points)

    async def create_session(
        self,
        session_id: str | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> AsyncSession:
        """Opens a shell whose directory and variables last from one command to the next."""
        name = session_id or f"session-{new_request_id()[:12]}"
        body = {"id": name, "cwd": cwd, "env": None if env is None else dict(env), "user": user}
        given = {key: value for key, value in body.items() if value is not None}
        await self._transport.call("POST", f"{self._route}/sessions", dict[str, Any], body=given)
        return self.get_session(name)

    def get_session(self, session_id: str) -> AsyncSession:
        """A handle on a session, whether it is open or not; no I/O."""
        return AsyncSession(self, session_id)

    async def list_sessions(self) -> list[str]:
        """The names of its open sessions."""
        answer = await self._transport.call("GET", f"{self._route}/sessions", SessionList, repeat=True)
        return answer.sessions

    async def delete_session(self, session_id: str) -> None:
        """Closes a session and ends what runs in it."""
        await self._transport.call("DELETE", f"{self._route}/sessions/{segment(session_id)}", type(None))

    def events(self, *, after: int = 0, types: str | Sequence[str] | None = None) -> AsyncFollowing[Event]:
        """An iterator over all that was asked of it and came of it, then over what comes; see `Stream.events`."""
        return self.stream.events(after=after, types=types)

    async def _verb(self, verb: str) -> SandboxView:
        return await self._transport.call("POST", f"{self._route}/{verb}", SandboxView, body={})

    async def _change(self, **change: Any) -> SandboxView:
        return await self._transport.call("PATCH", self._route, SandboxView, body=change)
