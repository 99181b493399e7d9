"""Owns the typed commands that control sends to node and their answers, one JSON message each (SOCK_SEQPACKET).

Called by node (decoding) and adapters/node_client (encoding). Invariant: the set is closed and small; a message
over MAX_MESSAGE bytes or of an unknown tag is refused; descriptors travel beside a message, never data.
"""

from __future__ import annotations

from typing import Any

import msgspec

MAX_MESSAGE = 128 * 1024
PROTOCOL = 1
MAX_GIVEN = 1
"""Descriptors beside a command."""


class Hello(msgspec.Struct, tag="hello"):
    """Who are you: protocol, runtimes, capacity."""

    protocol: int = PROTOCOL


class ResolveImage(msgspec.Struct, tag="resolve-image"):
    """Turn an image's name or digest into a digest that is here."""

    image: str


class ListImages(msgspec.Struct, tag="list-images"):
    """Every image that is here."""


class Build(msgspec.Struct, tag="build"):
    """Make the sandbox's directory, disk and record; idempotent for equal words."""

    sandbox: str
    instance_type: str
    image_digest: str
    isolation: str = "container"


class Start(msgspec.Struct, tag="start"):
    """Mount, make namespaces, run the container; idempotent while it runs.

    The stacks (layers, the topmost first) are for a disk that is made new: an upper that is here lies on its own.
    `root` and `usr` are None where what is outside `/workspace` does not last; else they were made on the image
    `made_on`, and are left out when the sandbox's image is another by now. Without `fresh` a missing disk is
    SNAPSHOT_MISSING. Stacks that weigh more than the sandbox's disk are DISK_TOO_SMALL.
    """

    sandbox: str
    hostname: str
    workspace: list[str] = []
    root: list[str] | None = None
    usr: list[str] | None = None
    fresh: bool = False
    made_on: str | None = None


class Limit(msgspec.Struct, tag="limit"):
    """Put the instance type's CPU limit in force; sent once the guest is ready (DESIGN 5)."""

    sandbox: str
    hostname: str | None = None


class Connect(msgspec.Struct, tag="connect"):
    """Answers with two descriptors: a socket connected to the guest, and a pidfd of its container."""

    sandbox: str


class Stop(msgspec.Struct, tag="stop"):
    """Kill the container and take its mounts and namespaces down; the disk stays."""

    sandbox: str


class Remove(msgspec.Struct, tag="remove"):
    """Stop, then delete disk and directory; idempotent, also for a sandbox that is half there."""

    sandbox: str


class Usage(msgspec.Struct, tag="usage"):
    """CPU, memory, processes, disk and out-of-memory kills of one sandbox."""

    sandbox: str


class Census(msgspec.Struct, tag="census"):
    """Every resource on this machine that carries this installation's name."""


class Pack(msgspec.Struct, tag="pack"):
    """Pack the sandbox's uppers as layers, `live` while it runs, else while it sleeps; answers with `Packed`.

    A file of paths to leave out of the workspace, each with a NUL behind it, comes as a descriptor; `names` are left
    out wherever they stand.
    """

    sandbox: str
    live: bool = False
    names: list[str] = []


class Point(msgspec.Struct, tag="point"):
    """Pack the uppers of a sandbox that runs, all of them, unless they are as at the mark `seen`: `Pointed`."""

    sandbox: str
    seen: str = ""


class DropDisk(msgspec.Struct, tag="drop-disk"):
    """Delete the disk of a sandbox that does not run: what was on it is in layers, or not wanted any more."""

    sandbox: str


class Compact(msgspec.Struct, tag="compact"):
    """Merge neighbouring layers (the topmost first) to one; `bottom`: nothing lies below them."""

    layers: list[str]
    bottom: bool


class Compare(msgspec.Struct, tag="compare"):
    """What the stack `new` changes beside `old`; with `sandbox`, its upper and that upper's own stack are `new`.

    Answers with `Compared` and a descriptor of the list.
    """

    old: list[str]
    new: list[str] = []
    sandbox: str | None = None


class Export(msgspec.Struct, tag="export"):
    """Write the tree of a stack as a tar to the descriptor that comes with this."""

    layers: list[str]


class OpenLayer(msgspec.Struct, tag="open-layer"):
    """Answers with a descriptor to read the layer's image from."""

    layer: str


class BeginImport(msgspec.Struct, tag="begin-import"):
    """Answers with a descriptor to write a fetched layer to."""


class CommitImport(msgspec.Struct, tag="commit-import"):
    """Make the file that comes with this, of a `begin-import`, a layer, if it hashes to `layer`."""

    layer: str


class ListLayers(msgspec.Struct, tag="list-layers"):
    """Every layer on this machine with its size in bytes, and those that an upper lies on."""


class RemoveLayer(msgspec.Struct, tag="remove-layer"):
    """Delete a layer from this machine, unless an upper lies on it."""

    layer: str


class MountBucket(msgspec.Struct, tag="mount-bucket"):
    """Mount a bucket in a sandbox that runs; answers with `BucketHere`. Without credentials for a public one."""

    sandbox: str
    bucket: str
    mount_path: str
    endpoint: str
    prefix: str | None = None
    read_only: bool = False
    options: list[str] = []
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None

    def __repr__(self) -> str:
        return f"MountBucket({self.sandbox!r}, {self.bucket!r}, {self.mount_path!r}, …)"


class UnmountBucket(msgspec.Struct, tag="unmount-bucket"):
    """Take a bucket out of a sandbox that runs; `force`: whatever uses it. Without a path all of them, by force."""

    sandbox: str
    mount_path: str | None = None
    force: bool = False


class ListBuckets(msgspec.Struct, tag="list-buckets"):
    """The buckets that are mounted in a sandbox: a list of `BucketHere`."""

    sandbox: str


Request = (
    Hello
    | ResolveImage
    | ListImages
    | Build
    | Start
    | Limit
    | Connect
    | Stop
    | Remove
    | Usage
    | Census
    | Pack
    | Point
    | DropDisk
    | Compact
    | Compare
    | Export
    | OpenLayer
    | BeginImport
    | CommitImport
    | ListLayers
    | RemoveLayer
    | MountBucket
    | UnmountBucket
    | ListBuckets
)


class Call(msgspec.Struct):
    """A request with its number; answers carry the number back in any order."""

    id: int
    request: Request


class Reply(msgspec.Struct):
    """The answer to call `id`: `ok` or an error's code, message, details and hint."""

    id: int
    ok: Any = None
    code: str | None = None
    message: str | None = None
    details: Any = None
    hint: str | None = None


class Unit(msgspec.Struct):
    """One sandbox as the machine shows it: which of its resources exist."""

    sandbox: str
    instance_type: str | None = None
    image_digest: str | None = None
    record: bool = False
    running: bool = False
    container: bool = False
    mounts: int = 0
    loop: bool = False
    cgroup: bool = False
    netns: bool = False

    def at_rest(self) -> bool:
        """Whether nothing is there but what lies on disk."""
        return not (self.running or self.container or self.mounts or self.loop or self.cgroup or self.netns)


class Counters(msgspec.Struct):
    """Usage of one sandbox: bytes, seconds of CPU, counts; `packed_…` of the pack that goes on, if one does."""

    cpu_seconds: float = 0.0
    memory: int = 0
    pids: int = 0
    oom_kills: int = 0
    disk_used: int = 0
    disk_size: int = 0
    packed_names: int = 0
    packed_bytes: int = 0


class Started(msgspec.Struct):
    """How a sandbox runs: whether this call made it run, whether its disk is new, the stacks it lies on, and the digest
    of the image below them."""

    ran: bool
    new_disk: bool
    workspace: list[str]
    root: list[str] | None = None
    usr: list[str] | None = None
    image: str | None = None


class Made(msgspec.Struct):
    """A layer that was made; sizes in bytes, as `kennel.domain.layer.LayerInfo` has them."""

    digest: str
    size: int
    unpacked: int
    entries: int
    left_out: int = 0
    left_out_bytes: int = 0


class Part(msgspec.Struct):
    """One packed upper: the stack with it on top, and what was made; None when nothing had changed."""

    stack: list[str]
    made: Made | None = None


class Packed(msgspec.Struct):
    """The uppers of a sandbox as stacks; None where there is none. `frozen_ms`: how long a live one stood still;
    `image`: the digest of the image that `root` and `usr` lie on."""

    workspace: Part
    root: Part | None = None
    usr: Part | None = None
    frozen_ms: float = 0.0
    image: str | None = None


class Pointed(msgspec.Struct):
    """A point: the mark to know its state by (empty when there is none), and its stacks; None when nothing changed.

    `names`: how many names the uppers hold.
    """

    mark: str
    names: int = 0
    packed: Packed | None = None


class Compared(msgspec.Struct):
    """How many paths differ."""

    added: int
    changed: int
    removed: int


class LayersHere(msgspec.Struct):
    """Layers on a machine: sizes in bytes, and those that the uppers there lie on."""

    sizes: dict[str, int]
    held: list[str]


class BucketHere(msgspec.Struct):
    """A bucket that is mounted; `alive`: whether what serves it runs. The time is ISO 8601 in UTC."""

    bucket: str
    mount_path: str
    endpoint: str
    prefix: str | None
    read_only: bool
    since: str
    alive: bool
