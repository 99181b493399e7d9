"""Owns what node, control and the gateway say to each other: length-prefixed JSON frames on one Unix stream socket.

Called by gateway (answering), node (attaching listeners, supplying sockets) and control (pushing policy, secrets,
decisions, previews). Invariant:
the user at the other end (SO_PEERCRED) decides which messages it may send; a frame over MAX_FRAME bytes, of an unknown
tag, or from the wrong peer ends its connection; descriptors travel beside `attach` and `sockets` alone.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Literal

import msgspec

from kennel.wire.egress import Record, SealedSecret

PROTOCOL = 2
MAX_FRAME = 8 * 1024 * 1024
LISTENERS = 4
"""Descriptors beside an attach: TCP v4, TCP v6, DNS over UDP v4, DNS over UDP v6."""
PAIRS = 4
"""Sockets of each family beside a `sockets`: first those of v4, then those of v6."""
MAX_PREVIEWS = 1024
ADDRESS, ADDRESS_6 = "198.18.0.2", "fd6b:656e:6e65:6c::2"
"""What a sandbox's `eth0` is called; every sandbox has the same, since none can see another's."""

Id = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]{8,40}$")]
Text = Annotated[str, msgspec.Meta(max_length=1024)]


class Attach(msgspec.Struct, tag="attach"):
    """From node: these listeners stand inside this sandbox's namespace. Replaces earlier ones of the same id."""

    sandbox: Id


class Detach(msgspec.Struct, tag="detach"):
    """From node: the sandbox ends; every socket in its namespace is closed before the answer."""

    sandbox: Id


class Supply(msgspec.Struct, tag="supply"):
    """From node: this connection is asked for sockets of namespaces (`Need`); replaces an earlier one."""


class Sockets(msgspec.Struct, tag="sockets"):
    """From node: the sockets that a `Need` asked for; with `fault` there are none, and it says why."""

    sandbox: Id
    attachment: int
    fault: Text = ""


class Authority(msgspec.Struct, tag="authority"):
    """From node: answers the PEM of the authority that sandboxes are to trust."""


class Hello(msgspec.Struct, tag="hello"):
    """From control: answers `Facts`; the connection then receives notices, replacing any earlier one."""

    protocol: int = PROTOCOL


class Bind(msgspec.Struct, tag="bind", rename="camel"):
    """From control: whose sandbox this is. Until then everything from it is refused.

    `sandbox` is node's id, `path` what rules and audit call it.
    """

    sandbox: Id
    project: Text
    path: Text


class Unbind(msgspec.Struct, tag="unbind"):
    """From control: the sandbox is nobody's; its connections are cut."""

    sandbox: Id


class SetPolicy(msgspec.Struct, tag="set-policy"):
    """From control: a project's whole policy (`wire.egress.Policy`); in force from the next request on."""

    project: Text
    policy: dict[str, Any]


class DropProject(msgspec.Struct, tag="drop-project"):
    """From control: policy and secrets of the project are forgotten; its sandboxes are refused."""

    project: Text


class PutSecret(msgspec.Struct, tag="put-secret"):
    """From control: this sealed secret is in force; replaces an earlier one at its path."""

    project: Text
    secret: SealedSecret


class DropSecret(msgspec.Struct, tag="drop-secret"):
    """From control: there is no secret at this path any more."""

    project: Text
    path: Text


class ProjectKey(msgspec.Struct, tag="project-key"):
    """From control: answers `PublicKey`, to which this project's secrets are sealed; made when first asked for."""

    project: Text


class PreviewRow(msgspec.Struct):
    """A port that has a preview; `wake` lets a visitor wake its sandbox."""

    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    token: Annotated[str, msgspec.Meta(pattern=r"^[a-z2-7]{16}$")]
    wake: bool = False


class SetPreviews(msgspec.Struct, tag="set-previews"):
    """From control: all previews of a sandbox; what is not among them is void, and cut before the answer.

    `revoked` are tokens that once were good.
    """

    sandbox: Id
    previews: Annotated[list[PreviewRow], msgspec.Meta(max_length=MAX_PREVIEWS)] = []
    revoked: Annotated[list[PreviewRow], msgspec.Meta(max_length=MAX_PREVIEWS)] = []


class PreviewsTold(msgspec.Struct, tag="previews-told"):
    """From control: every sandbox with previews was named since its `Hello`; there are no others."""

    instance: Text


class Woken(msgspec.Struct, tag="woken"):
    """From control: what came of a `Knock`; without a code the sandbox runs."""

    sandbox: Id
    code: Text = ""
    message: Text = ""


class Decide(msgspec.Struct, tag="decide", rename="camel"):
    """From control: one decision for a whole batch, one verdict per request in its order."""

    hold: Text
    verdicts: list[bool]
    decided_by: Text = ""
    reason: Text = ""
    key_id: str | None = None
    signature: str | None = None


class Acknowledge(msgspec.Struct, tag="acknowledge"):
    """From control: every record up to sequence `through` is committed to the log."""

    through: int


class Try(msgspec.Struct, tag="try"):
    """From control: answers `Finding`: what this request would meet; nothing leaves, nothing is looked up."""

    project: Text
    path: Text
    method: Text
    url: Annotated[str, msgspec.Meta(max_length=8192)]
    headers: list[tuple[str, str]] = []


class Counters(msgspec.Struct, tag="counters"):
    """From control: answers requests and bytes per host of a project since the gateway started."""

    project: Text


Request = (
    Attach | Detach | Supply | Sockets | Authority | Hello | Bind | Unbind | SetPolicy | DropProject | PutSecret
    | DropSecret | ProjectKey | SetPreviews | PreviewsTold | Woken | Decide | Acknowledge | Try | Counters
)  # fmt: skip
FROM_NODE: tuple[type, ...] = (Attach, Detach, Supply, Sockets, Authority)
FROM_CONTROL: tuple[type, ...] = (
    Hello, Bind, Unbind, SetPolicy, DropProject, PutSecret, DropSecret, ProjectKey, SetPreviews, PreviewsTold, Woken,
    Decide, Acknowledge, Try, Counters,
)  # fmt: skip


def descriptors(request: Request) -> int:
    """How many descriptors travel beside a request."""
    if isinstance(request, Attach):
        return LISTENERS
    return 2 * PAIRS if isinstance(request, Sockets) and not request.fault else 0


class Facts(msgspec.Struct, rename="camel"):
    """What the gateway tells of itself; `instance` changes with every start, and ends all earlier holds."""

    protocol: int
    instance: str
    authority: str
    attached: list[str]
    acknowledged: int


class PublicKey(msgspec.Struct):
    """Base64 of a raw X25519 public key, and its name."""

    kid: str
    key: str


class Finding(msgspec.Struct, rename="camel"):
    """What a request would meet: verdict, the code and words of a denial, which rule, which secret, which lane."""

    verdict: str
    code: str = ""
    detail: str = ""
    rule_key: str | None = None
    secret_path: str | None = None
    lane: str = "plain"


class Call(msgspec.Struct, tag="call"):
    """A request with its number."""

    id: int
    request: Request


class Reply(msgspec.Struct, tag="reply"):
    """The answer to call `id`: `ok`, or a code and words."""

    id: int
    ok: Any = None
    code: str | None = None
    message: str | None = None


class Records(msgspec.Struct, tag="records"):
    """To control: audit records in order, the first of them with sequence `first`; sent again until acknowledged.

    `ledger` names the numbering: with `(ledger, sequence)` as idempotency key a record is committed once.
    """

    ledger: str
    first: int
    records: list[Record]


class HeldRequest(msgspec.Struct, rename="camel", omit_defaults=True):
    """A request that waits, as a person judges it: placeholders, never values; `body` its first 64 KiB (base64)."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    secret_paths: list[str] = []
    body: str = ""
    body_sha256: str = ""
    body_length: int | None = None
    body_truncated: bool = False


class HoldRequested(msgspec.Struct, tag="hold-requested", rename="camel"):
    """To control: these requests wait for one decision; sent again to a control that comes back."""

    hold: str
    project: str
    path: str
    rule_key: str
    rule_description: str
    requests: list[HeldRequest]
    expires_at: int


class HoldEnded(msgspec.Struct, tag="hold-ended", rename="camel"):
    """To control: a batch ended without its decision: `expired` in time, or `withdrawn` by its callers."""

    hold: str
    project: str
    how: Literal["expired", "withdrawn"]


class HoldSettled(msgspec.Struct, tag="hold-settled", rename="camel", omit_defaults=True):
    """To control: how an approved request of a batch went: its status, or what went wrong."""

    hold: str
    project: str
    index: int
    status: int = 0
    error: str = ""


class SecretRotated(msgspec.Struct, tag="secret-rotated"):
    """To control: new material for a secret, sealed; stored only if the secret is still at `secret.offset`."""

    project: str
    secret: SealedSecret


class Knock(msgspec.Struct, tag="knock"):
    """To control: a visitor came to a preview that may wake this sandbox, which sleeps; answered by `Woken`."""

    sandbox: str


class Traffic(msgspec.Struct, tag="traffic"):
    """To control: bytes of visitors passed to or from these sandboxes since this was said last."""

    sandboxes: list[str]


class Need(msgspec.Struct, tag="need"):
    """To node: make sockets in this sandbox's namespace; `attachment` is said again with them."""

    sandbox: str
    attachment: int


Notice = Records | HoldRequested | HoldEnded | HoldSettled | SecretRotated | Knock | Traffic
Frame = Call | Reply | Records | HoldRequested | HoldEnded | HoldSettled | SecretRotated | Knock | Traffic | Need

_length = struct.Struct(">I")
_encoder = msgspec.json.Encoder()


def encode(frame: Frame) -> bytes:
    """The frame with its length before it; ValueError over MAX_FRAME."""
    body = _encoder.encode(frame)
    if len(body) > MAX_FRAME:
        raise ValueError(f"a frame of {len(body)} bytes (at most {MAX_FRAME})")
    return _length.pack(len(body)) + body


def encode_records(ledger: str, first: int, lines: list[bytes]) -> bytes:
    """A `Records` frame from lines that are JSON already."""
    head = _encoder.encode({"type": "records", "ledger": ledger, "first": first})
    body = head[:-1] + b',"records":[' + b",".join(lines) + b"]}"
    return _length.pack(len(body)) + body


class Splitter:
    """Cuts a byte stream into the bodies of frames; ValueError at a length over MAX_FRAME."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        bodies: list[bytes] = []
        while len(self._buffer) >= _length.size:
            (size,) = _length.unpack_from(self._buffer)
            if size > MAX_FRAME:
                raise ValueError(f"a frame of {size} bytes (at most {MAX_FRAME})")
            end = _length.size + size
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[_length.size : end]))
            del self._buffer[:end]
        return bodies
