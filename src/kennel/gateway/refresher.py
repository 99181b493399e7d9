"""Owns getting new material for a secret: one request to its strategy's endpoint, however many ask at once.

Called by renewals. Invariant: the endpoint lies inside the secret's pin and no rule denies it; the audit has it before
it is sent; what came back is sealed and on disk before anybody uses it; a secret replaced meanwhile stays replaced.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kennel.domain.denial import Refused
from kennel.domain.egress_host import parse_authority, written
from kennel.domain.policy import Subject
from kennel.domain.secret_pin import endpoint_of
from kennel.gateway import strategies
from kennel.gateway.message_head import Header, request_head
from kennel.gateway.registry import Project, Sandbox
from kennel.gateway.strategies import Asking
from kennel.gateway.upstream import Upstream
from kennel.wire.egress import Record, SealedSecret

if TYPE_CHECKING:
    from kennel.gateway.context import Context

PATIENCE = 30.0
_MOST = 64 * 1024

log = logging.getLogger("kennel.gateway.refresher")


class Refresher:
    """`Refresher(context)`; one flight a secret."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._flights: dict[tuple[str, str, int], asyncio.Task[None]] = {}

    async def renew(self, sandbox: Sandbox, secret: SealedSecret) -> None:
        """New material for this secret is in force when this returns; Refused says why not."""
        project, _ = sandbox.require()
        current = project.secrets.get(secret.path)
        if current is None or current.box != secret.box:
            return  # somebody else has renewed or replaced it since the caller looked
        name = (project.name, secret.path, secret.offset)
        flight = self._flights.get(name)
        if flight is None:
            flight = asyncio.get_running_loop().create_task(self._fly(sandbox, project, secret))
            self._flights[name] = flight
            flight.add_done_callback(lambda done: self._landed(name, done))
        # A caller that goes away does not take the flight with it: others wait, and the old token may be void already.
        await asyncio.shield(flight)

    def _landed(self, name: tuple[str, str, int], flight: asyncio.Task[None]) -> None:
        self._flights.pop(name, None)
        if not flight.cancelled() and (failure := flight.exception()) is not None:
            log.info("%s of %s was not refreshed: %s", name[1], name[0], failure)

    async def _fly(self, sandbox: Sandbox, project: Project, secret: SealedSecret) -> None:
        context, refresh = self._context, secret.refresh
        assert refresh is not None
        material = json.loads(context.vault.open(project.name, secret))
        asking = strategies.ask(refresh, material)
        record = self._permitted(sandbox, project, secret, asking)
        await context.journal.commit(record)
        status, begun = 0, time.monotonic()
        try:
            status, body = await self._send(record.host, record.port, asking)
            fresh = strategies.adopt(refresh, material, status, body, time.time())
        except Refused as refused:
            self._note(record, status, begun, refused.code, refused.detail)
            raise Refused("secret_refresh_failed", refused.detail, refused.rule_key) from None
        self._note(record, status, begun)
        sealed = context.vault.reseal(project.name, secret, json.dumps(fresh))
        context.tell(context.rotations.keep(project.name, sealed))
        current = project.secrets.get(secret.path)
        if current is not None and current.offset == secret.offset:
            project.secrets[secret.path] = sealed

    def _permitted(self, sandbox: Sandbox, project: Project, secret: SealedSecret, asking: Asking) -> Record:
        """The decision to put on record; Refused when pin or rules do not let the gateway ask."""
        _, policy = sandbox.require()
        assert secret.refresh is not None
        if endpoint_of(secret.refresh) not in secret.pin.origins:
            raise Refused("secret_not_allowed_for_origin", f"the endpoint of {secret.path} is none of its origins")
        parts = urlsplit(secret.refresh.endpoint)
        authority = parse_authority(parts.netloc)
        assert authority is not None
        port = authority.port or 443
        path = asking.target.partition("?")[0]
        subject = Subject(sandbox.path, authority.host, port, "POST", path, None, (secret.path,))
        judged = policy.judge(subject)
        if judged.verdict == "deny":
            raise Refused("secret_refresh_failed", judged.detail, judged.rule.rule_key if judged.rule else None)
        return Record(
            kind="decision", layer="gateway", request=self._context.number(), project=project.name,
            sandbox=sandbox.path, host=authority.host, port=port, method="POST",
            url=f"https://{written(authority.host, port, 'https')}{asking.target}", verdict="allow", lane="refresh",
            policy=policy.policy.version, secret_path=secret.path, places=["refresh"],
        )  # fmt: skip

    async def _send(self, host: str, port: int, asking: Asking) -> tuple[int, bytes]:
        _, upstream = await self._context.dialler.connect(Upstream, host, port, tls=True)
        head = request_head(
            "POST", asking.target, written(host, port, "https"), asking.headers,
            b"content-length: %d\r\n" % len(asking.body),
        )  # fmt: skip
        call = _Call()
        try:
            async with asyncio.timeout(PATIENCE):
                upstream.begin(call, head, bodiless=False)
                upstream.write(asking.body)
                return await call.answer
        except TimeoutError:
            raise Refused("upstream_timeout", "the token endpoint did not answer in time") from None
        finally:
            upstream.abort()

    def _note(self, record: Record, status: int, begun: float, code: str = "", detail: str = "") -> None:
        outcome = Record(
            kind="outcome", layer="gateway", request=record.request, project=record.project, sandbox=record.sandbox,
            host=record.host, port=record.port, status=status, code=code, detail=detail[:1000],
            duration_ms=int((time.monotonic() - begun) * 1000), secret_path=record.secret_path,
        )  # fmt: skip
        self._context.journal.note(outcome)


class _Call:
    """One answer, kept whole. Implements `upstream.Reply`."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._body = bytearray()

    def on_interim(self, status: int) -> None:
        """Interim answers say nothing here."""

    def on_head(self, status: int, reason: bytes, headers: list[Header]) -> bool:
        self._status = status
        codings = [value for name, value in headers if name == b"content-encoding" and value.lower() != b"identity"]
        return status != 101 and not codings

    def on_data(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > _MOST:
            self.on_failure("upstream_malformed", "the token endpoint's answer is too long")

    def on_end(self) -> None:
        if not self.answer.done():
            self.answer.set_result((self._status, bytes(self._body)))

    def on_switch(self, leftover: bytes) -> None:
        self.on_failure("upstream_malformed", "the token endpoint switched protocols")

    def on_failure(self, code: str, detail: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(Refused(code, detail))

    def flush(self) -> None:
        """Nothing is passed on."""

    def pause_client(self, paused: bool) -> None:
        """Nothing is read from a sandbox."""
