"""Owns one request from its head to the end of its answer: judged, recorded, sent, answered.

Made by a conversation for every request. Invariant: nothing leaves before its decision is in the journal; values take
their placeholders' place in the last step; every way out of here writes one outcome.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from kennel.domain.denial import Refused
from kennel.domain.policy import Judgement
from kennel.domain.substitution import Survey
from kennel.gateway import judge, renewal
from kennel.gateway.answer import Answer
from kennel.gateway.client_link import SERVER
from kennel.gateway.dispatch import Dispatch, build, collect, plain_head, prepare_body
from kennel.gateway.message_head import refusal_head
from kennel.gateway.registry import Project
from kennel.gateway.renewal import Sending
from kennel.gateway.request_reader import Header, Incoming
from kennel.gateway.upstream import Upstream
from kennel.gateway.waiting import held_request
from kennel.wire.egress import Record

if TYPE_CHECKING:
    from kennel.gateway.conversation import Conversation

_REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PROPFIND"))
_REUSE_UNSAFE = 2.0
"""Seconds for which an idle connection is trusted with a request that cannot be repeated."""

log = logging.getLogger("kennel.gateway.exchange")


class Exchange:
    """One request and its answer. Implements `upstream.Reply`."""

    def __init__(self, conversation: Conversation, incoming: Incoming) -> None:
        self.conversation = conversation
        self.context = conversation.context
        self.place = conversation.place
        self.incoming = incoming
        self.tunnelled = False
        self.held = False
        self.cut_for = ""
        self.wanted_body = 0
        self.record = Record(kind="decision")
        self.project: Project | None = None
        self.upstream: Upstream | None = None
        self.answer: Answer | None = None
        self.settle_hold: tuple[str, int] | None = None
        self._task: asyncio.Task[None] | None = None
        self._dispatch: Dispatch | None = None
        self._sending: Sending | None = None
        self._sent = 0
        self._started = time.monotonic()
        self._over = False
        self._retried = False
        self._in_bulk = False

    # The way out.

    def start(self) -> None:
        """Judges the request; what needs nothing but a connection at hand is sent before this returns."""
        judge.describe(self.context, self.place, self.incoming, self.record)
        try:
            found, judged = self._judge_head()
            lane = judge.lane_of(
                self.context, self.place, self.incoming.method, self.incoming.headers, found,
                self.incoming.websocket is not None,
            )  # fmt: skip
            upstream = self._at_hand()
            if judged.verdict == "allow" and lane == "plain" and upstream is not None and not self.context.journal.full:
                self._allowed(judged, "plain")
                self.context.journal.write(self.record)
                self._send(upstream, Dispatch(self.place.origin, plain_head(self)))
                return
        except Refused as refused:
            self.refuse(refused)
            return
        except (OSError, ValueError) as failure:
            self._failed(failure)
            return
        self._spawn(self._slow(found, judged, lane))

    def _judge_head(self) -> tuple[Survey, Judgement]:
        place, incoming = self.place, self.incoming
        self.project, policy = place.sandbox.require()
        self.record.policy = policy.policy.version
        fault = place.fault or incoming.fault
        if fault is not None:
            raise fault
        assert incoming.target is not None
        judge.require_authority(place, incoming.host)
        found = judge.survey_request(policy, place, incoming.method, incoming.target, incoming.headers)
        return found, self.judge_policy(found)

    def judge_policy(self, found: Survey) -> Judgement:
        """The policy's word on this request with these references; Refused for a denial."""
        _, policy = self.place.sandbox.require()
        target = self.incoming.target
        assert target is not None
        judged = policy.judge(judge.subject_of(self.place, self.incoming.method, target, found.subjects))
        judge.refuse_denied(judged)
        return judged

    def _allowed(self, judged: Judgement, lane: str) -> None:
        record = self.record
        record.verdict, record.would, record.lane = "allow", judged.would, lane
        record.rule_key = judged.rule.rule_key if judged.rule is not None else None

    def _at_hand(self) -> Upstream | None:
        upstream = self.conversation.upstream
        if upstream is not None and not upstream.usable:
            upstream.abort()
            upstream = self.conversation.upstream = None
        safe = self.incoming.method in _REPEATABLE
        if upstream is not None and (safe or time.monotonic() - upstream.idle_since < _REUSE_UNSAFE):
            return upstream
        return None

    async def _slow(self, found: Survey, judged: Judgement, lane: str) -> None:
        """The way of everything that waits: for room, a body, a person, the log, or a connection."""
        context, incoming = self.context, self.incoming
        if context.journal.full:
            await context.journal.room()
        body = await prepare_body(self, found, lane)
        if found.template:
            judged = self.judge_policy(found)
        lane = body.lane
        target = incoming.target
        assert self.project is not None
        assert target is not None
        values = judge.require_secret(context, self.project, self.place, incoming.method, target, found)
        self.record.secret_path = found.subjects[0] if found.subjects else None
        self.record.places = found.places
        if judged.verdict == "hold":
            await self._wait_for_decision(found, judged)
            # Rules may have changed meanwhile, and so may the secret and its pin.
            values = renewal.require(self, found)
        values, renewed = await renewal.renew_stale(self, found, values)
        self._sending = Sending(found, body, values, renewed)
        dispatch = build(self, found, values, body)
        self._allowed(judged, lane)
        if values is not None or self.settle_hold is not None:
            await context.journal.commit(self.record)
        else:
            context.journal.write(self.record)
        self._send(await self._connection(dispatch), dispatch)

    async def _wait_for_decision(self, found: Survey, judged: Judgement) -> None:
        assert judged.rule is not None
        kept = await collect(self, limit=64 * 1024, whole=False)
        self.held = True
        self.record.verdict, self.record.rule_key = "hold", judged.rule.rule_key
        try:
            request = held_request(self, found, kept)
            self.settle_hold = await self.context.holds.wait(self, judged.rule, request)
        finally:
            self.held = False

    async def _connection(self, dispatch: Dispatch) -> Upstream:
        sandbox, origin = self.place.sandbox, dispatch.origin
        if origin == self.place.origin:
            at_hand = self._at_hand()
            if at_hand is not None:
                return at_hand
            if self.conversation.upstream is not None:
                self.conversation.upstream.abort()
                self.conversation.upstream = None
        if self.incoming.method in _REPEATABLE and self.incoming.complete:
            idle = self.context.take_idle(sandbox, origin)
            if idle is not None:
                return idle
        return await self.context.connect(sandbox, origin, trusted=dispatch.trusted)

    def _send(self, upstream: Upstream, dispatch: Dispatch) -> None:
        """The last step: the head that was built, then the body as it comes."""
        if self._over:
            upstream.abort()
            return
        self.upstream, self._dispatch = upstream, dispatch
        self.answer = Answer(self, dispatch)
        if dispatch.origin == self.place.origin:
            self.conversation.upstream = upstream
        incoming = self.incoming
        upstream.begin(self, dispatch.head, bodiless=incoming.method == "HEAD")
        self._sent = len(dispatch.head)
        if dispatch.body is not None:
            self._sent += len(dispatch.body)
            upstream.write(dispatch.body)
            incoming.drain()
            incoming.sink = _nowhere
        elif incoming.chunked or incoming.length:
            if incoming.expects and not incoming.complete and not incoming.body:
                self.conversation.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            kept = incoming.drain()
            incoming.sink = self._pass_on
            if kept:
                self._pass_on(kept)
            if incoming.complete:
                self._body_complete()
            else:
                incoming.waiter = self._body_complete
            self.conversation.body_taken()

    def _pass_on(self, data: bytes) -> None:
        if self.upstream is not None:
            self._sent += len(data)
            self.conversation.deadline = time.monotonic() + self.context.options.response_timeout
            self.upstream.write(b"%x\r\n%b\r\n" % (len(data), data) if self.incoming.chunked else data)

    def _body_complete(self) -> None:
        if self.incoming.complete and self.incoming.chunked and self.upstream is not None:
            self.upstream.write(b"0\r\n\r\n")

    # The way back (upstream.Reply).

    def on_interim(self, status: int) -> None:
        """Interim answers end here: the one a sandbox can ask for was given already."""

    def on_head(self, status: int, reason: bytes, headers: list[Header]) -> bool:
        assert self.answer is not None
        assert self._dispatch is not None
        if renewal.can_renew(self, self._sending, self._dispatch, status):
            self._drop_upstream()
            self._spawn(self._renewed())
            return True
        return self.answer.head(status, reason, headers)

    async def _renewed(self) -> None:
        assert self._sending is not None
        dispatch = await renewal.rebuild(self, self._sending)
        self._send(await self._connection(dispatch), dispatch)

    def on_data(self, data: bytes) -> None:
        self.record.bytes_in += len(data)
        if self.tunnelled:
            self.conversation.deadline = time.monotonic() + self.context.options.websocket_idle
            self.conversation.write(data)
        elif self.answer is not None:
            self.answer.data(data)

    def write(self, data: bytes) -> None:
        self.conversation.write(data)

    def flush(self) -> None:
        if self.answer is not None:
            self.conversation.deadline = time.monotonic() + self.context.options.response_timeout
            self.answer.flush()

    def on_end(self) -> None:
        """The answer is whole: the connection may be used again if both sides ended cleanly."""
        answer, upstream, incoming = self.answer, self.upstream, self.incoming
        if self._over or answer is None or upstream is None:
            return
        answer.end()
        self._settle(answer.status)
        upstream.release()
        upstream.idle_since = time.monotonic()
        if not incoming.complete or not upstream.usable:
            upstream.abort()
            if self.conversation.upstream is upstream:
                self.conversation.upstream = None
        elif self.conversation.upstream is not upstream and self._dispatch is not None:
            self.context.give_idle(self.place.sandbox, self._dispatch.origin, upstream)
        incoming.sink = _nowhere
        self.conversation.done(keep=incoming.keep_alive and incoming.complete and not answer.close)

    def on_switch(self, leftover: bytes) -> None:
        """The host took the upgrade: from here on bytes are only counted."""
        self.tunnelled = True
        self.conversation.deadline = time.monotonic() + self.context.options.websocket_idle
        if self.answer is not None:
            self.answer.flush()
        if leftover:
            self.on_data(leftover)
        early = self.conversation.leftover()
        if early:
            self.on_client_data(early)

    def on_failure(self, code: str, detail: str) -> None:
        """The host failed: said to the sandbox if nothing of an answer went out, else the connection is cut."""
        if self._over:
            return
        if self.answer is not None and self.answer.fault is not None:
            code, detail = self.answer.fault.code, self.answer.fault.detail
        upstream, self.upstream = self.upstream, None
        if self.conversation.upstream is upstream:
            self.conversation.upstream = None
        if self.tunnelled or (self.answer is not None and self.answer.begun):
            self._settle(self.answer.status if self.answer else 0, code, detail)
            self._end_now(clean=self.tunnelled)
            return
        stale = code == "upstream_closed" and upstream is not None and not upstream.fresh and not self._retried
        if stale and self.incoming.method in _REPEATABLE and self.incoming.complete and not self.incoming.size:
            self._retried = True
            self._spawn(self._again())
            return
        self.refuse(Refused(code, detail), recorded=True)

    async def _again(self) -> None:
        dispatch = self._dispatch
        assert dispatch is not None
        self._send(await self.context.connect(self.place.sandbox, dispatch.origin, trusted=dispatch.trusted), dispatch)

    # What the conversation tells.

    def on_client_data(self, data: bytes) -> None:
        """Bytes of a tunnel."""
        self._sent += len(data)
        self.conversation.deadline = time.monotonic() + self.context.options.websocket_idle
        if self.upstream is not None:
            self.upstream.write(data)

    def on_client_end(self) -> None:
        if self.upstream is not None and self.upstream.transport is not None:
            if self.upstream.transport.can_write_eof():
                self.upstream.transport.write_eof()
            else:
                self.upstream.transport.close()

    def on_client_gone(self) -> None:
        """The sandbox closed its side: nothing of this request goes on."""
        if self._task is not None:
            self._task.cancel()
        if self._over:
            return
        self._settle(self.answer.status if self.answer else 0, "" if self.tunnelled else "client_gone", self.cut_for)
        self._drop_upstream()

    def _drop_upstream(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            if self.conversation.upstream is upstream:
                self.conversation.upstream = None
            upstream.abort()

    def on_broken_body(self, refused: Refused) -> None:
        """The body cannot be read on: what went out of it stays cut, and the sandbox is told if it still can be."""
        self._give_up(refused)

    def _give_up(self, refused: Refused) -> None:
        if self._task is not None:
            self._task.cancel()
        self._drop_upstream()
        if self.answer is not None and self.answer.begun:
            self._settle(self.answer.status, refused.code, refused.detail)
            self._end_now(clean=False)
        else:
            self.refuse(refused, recorded=self._dispatch is not None)

    def pause_server(self, paused: bool) -> None:
        if self.upstream is not None:
            self.upstream.pause(paused)

    def pause_client(self, paused: bool) -> None:
        self.conversation.hold_reading(SERVER, paused)

    def overdue(self) -> None:
        """No byte for too long."""
        if self.held:
            self.conversation.deadline = time.monotonic() + 60
        elif self.tunnelled or (self.answer is not None and self.answer.begun):
            self.conversation.cut("idle for too long")
        else:
            slow = "upstream_timeout" if self.incoming.complete else "request_timeout"
            self._give_up(Refused(slow, "nothing was heard for too long"))

    def review(self) -> None:
        """Policy changed under a tunnel: the upgrade is judged again."""
        try:
            target = self.incoming.target
            assert target is not None
            _, policy = self.place.sandbox.require()
            secrets = (self.record.secret_path,) if self.record.secret_path else ()
            judge.refuse_denied(policy.judge(judge.subject_of(self.place, self.incoming.method, target, secrets)))
        except Refused as refused:
            self.conversation.cut(f"the policy changed: {refused.code}")

    # Ends.

    async def enter_bulk(self) -> None:
        """Waits for one of the sandbox's places to keep a whole body; it is given back when the request is over."""
        await self.place.sandbox.bulk.acquire()
        self._in_bulk = True

    def _leave_bulk(self) -> None:
        if self._in_bulk:
            self._in_bulk = False
            self.place.sandbox.bulk.release()

    def refuse(self, refused: Refused, *, recorded: bool = False) -> None:
        """Answers with a reason. A denial is on the log before it is answered, if the log is there."""
        if self._over:
            return
        record = self.record
        if recorded:
            self._settle(refused.status, refused.code, refused.detail)
            self._answer_refusal(refused)
            return
        if not record.request:
            judge.describe(self.context, self.place, self.incoming, record)
        record.verdict, record.code, record.detail = "deny", refused.code, refused.detail[:1000]
        record.rule_key = refused.rule_key
        self._spawn(self._refuse(refused))

    async def _refuse(self, refused: Refused) -> None:
        try:
            await self.context.journal.commit(self.record)
        except (Refused, OSError) as away:
            # A denial stands whether the log is there or not; its record waits in the file.
            log.debug("a denial is answered before it is on the log: %s", away)
        self._over = True
        self._count(denied=True)
        self._answer_refusal(refused)

    def _answer_refusal(self, refused: Refused) -> None:
        incoming = self.incoming
        self._over = True
        self._leave_bulk()
        body = refused.body() if incoming.method != "HEAD" else b""
        keep = incoming.keep_alive and incoming.complete
        self.conversation.write(refusal_head(refused.status, len(body), keep=keep) + body)
        incoming.drain()
        incoming.sink = _nowhere
        self.conversation.done(keep=keep)

    def _failed(self, failure: BaseException) -> None:
        log.error("a request failed in the gateway: %s: %s", type(failure).__name__, failure, exc_info=failure)
        self.refuse(
            Refused("gateway_failed", "the gateway failed on this request"), recorded=self._dispatch is not None
        )

    def _spawn(self, work: object) -> None:
        self._task = asyncio.get_running_loop().create_task(self._guarded(work))
        self.context.spawn(self._task)

    async def _guarded(self, work: object) -> None:
        try:
            await work  # type: ignore[misc]
        except Refused as refused:
            if not self._over:
                # A decision that is on record already gets its reason as an outcome.
                self.refuse(refused, recorded=self.record.verdict == "allow")
        except Exception as failure:  # noqa: BLE001  # said to the sandbox and logged with its traceback
            self._failed(failure)

    def _end_now(self, *, clean: bool) -> None:
        transport = self.conversation.transport
        if transport is not None:
            if clean:
                transport.close()
            else:
                transport.abort()

    def _settle(self, status: int, code: str = "", detail: str = "") -> None:
        """Writes the outcome, once."""
        if self._over:
            return
        self._over = True
        self._leave_bulk()
        record = self.record
        if record.verdict is None:
            return
        took = int((time.monotonic() - self._started) * 1000)
        outcome = Record(
            kind="outcome", request=record.request, project=record.project, sandbox=record.sandbox, host=record.host,
            port=record.port, status=status, code=code, detail=detail[:1000], bytes_out=self._sent,
            bytes_in=record.bytes_in, duration_ms=took, secret_path=record.secret_path,
        )  # fmt: skip
        self.context.journal.note(outcome)
        self._count(denied=False)
        if self.settle_hold is not None and self.project is not None:
            self.context.holds.settled(self.project.name, *self.settle_hold, status, code)

    def _count(self, *, denied: bool) -> None:
        if self.place.sandbox.project is None:
            return
        tally = self.place.sandbox.project.tally(self.place.host)
        tally.requests += 1
        tally.denied += denied
        tally.bytes_out += self._sent
        tally.bytes_in += self.record.bytes_in


def _nowhere(_: bytes) -> None:
    """Where bytes go that nobody wants any more."""
