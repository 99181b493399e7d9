"""Owns a real gateway process for tests, and the two who talk to it: node (root) and a stand-in for control.

Used by tests/flow and tests/attack. Invariant: the process runs without privilege in the world's inner namespace; it is
ended with the test, and nothing of it stays.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from egress_world import RESOLVER, World
from kennel.adapters.vault.sealer import seal_secret
from kennel.domain.preview import Base
from kennel.gateway import dns_message as dns
from kennel.node import interception, netns
from kennel.node.gateway_link import GatewayLink
from kennel.settings import CONTROL_UID, GATEWAY_UID
from kennel.wire import gateway as wire
from kennel.wire.egress import Pin, Record, Refresh

_RUN = """
import json, os, sys
import uvloop, kennel.gateway.process as process, msgspec, logging, encodings.idna
from kennel.gateway.options import Options
from kennel.node import linux
logging.basicConfig(level="INFO", stream=sys.stderr)
fd = os.open(sys.argv[1], os.O_RDONLY); linux.setns(fd, linux.CLONE_NEWNET); os.close(fd)
os.setgroups([]); os.setresgid({uid}, {uid}, {uid}); os.setresuid({uid}, {uid}, {uid})
process.run(msgspec.json.decode(sys.argv[2], type=Options))
"""
_SETRESUID = 117 if os.uname().machine == "x86_64" else 147


class Control:
    """What control is to the gateway: pushes, decides, acknowledges; keeps every record and notice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        self.notices: list[Any] = []
        self.acknowledging = True
        self.facts: dict[str, Any] = {}
        self._replies: dict[int, wire.Reply] = {}
        self._news = threading.Condition()
        self._number = 0
        self._offset = 0
        self.connect()

    def connect(self, uid: int = CONTROL_UID) -> None:
        self._link = connect_as(uid, self.path)
        threading.Thread(target=self._listen, args=(self._link,), daemon=True).start()
        self.facts = self.call(wire.Hello())

    def close(self) -> None:
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()

    def call(self, request: wire.Request) -> Any:
        with self._news:
            self._number += 1
            number = self._number
        self._link.sendall(wire.encode(wire.Call(number, request)))
        with self._news:
            assert self._news.wait_for(lambda: number in self._replies, 5), request
            reply = self._replies.pop(number)
        if reply.code is not None:
            raise RuntimeError(f"{reply.code}: {reply.message}")
        return reply.ok

    def attached(self) -> list[str]:
        """The sandboxes that the gateway serves now."""
        return list(self.call(wire.Hello())["attached"])

    def bind(self, sandbox: str, project: str = "acme", path: str = "") -> None:
        self.call(wire.Bind(sandbox, project, path or f"/sandboxes/{sandbox}"))

    def _listen(self, link: socket.socket) -> None:
        splitter, decoder = wire.Splitter(), msgspec.json.Decoder(wire.Frame)
        with suppress(OSError):
            while data := link.recv(65536):
                for body in splitter.feed(data):
                    self._take(decoder.decode(body), link)

    def _take(self, frame: Any, link: socket.socket) -> None:
        with self._news:
            if isinstance(frame, wire.Reply):
                self._replies[frame.id] = frame
            elif isinstance(frame, wire.Records):
                self.records += frame.records
                if self.acknowledging:
                    self._number += 1
                    last = frame.first + len(frame.records) - 1
                    link.sendall(wire.encode(wire.Call(self._number, wire.Acknowledge(last))))
            else:
                self.notices.append(frame)
            self._news.notify_all()

    def wait_for(self, found: Callable[[], Any], timeout: float = 5) -> Any:
        with self._news:
            assert self._news.wait_for(found, timeout), (self.records[-5:], self.notices[-5:])
            return found()

    def notice(self, kind: type, timeout: float = 5) -> Any:
        return self.wait_for(lambda: next((n for n in self.notices if isinstance(n, kind)), None), timeout)

    def decisions(self, **words: Any) -> list[Record]:
        rows = [r for r in self.records if r.kind == "decision"]
        return [r for r in rows if all(getattr(r, name) == value for name, value in words.items())]

    def policy(self, *rules: dict[str, Any], project: str = "acme", **words: Any) -> None:
        self.call(wire.SetPolicy(project, {"rules": list(rules), **words}))

    def secret(
        self,
        path: str,
        material: Any,
        *origins: str,
        project: str = "acme",
        refresh: Refresh | None = None,
        **pin: Any,
    ) -> wire.PutSecret:
        key = msgspec.convert(self.call(wire.ProjectKey(project)), wire.PublicKey)
        self._offset += 1
        sealed = seal_secret(key, project, path, Pin(list(origins), **pin), self._offset, material, refresh)
        told = wire.PutSecret(project, sealed)
        self.call(told)
        return told


def connect_as(uid: int, path: Path) -> socket.socket:
    """A connection whose other end sees this uid: credentials are those of the thread that connects."""
    made: list[socket.socket] = []

    def work() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if uid != 0 and libc.syscall(_SETRESUID, uid, uid, uid) != 0:
            raise OSError(ctypes.get_errno(), "setresuid")
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(str(path))
        made.append(link)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return made[0]


class Sandbox:
    """A sandbox as far as the network goes: a namespace with interception, attached to the gateway."""

    def __init__(self, gateway: GatewayProcess, id_: str) -> None:
        self.gateway, self.id = gateway, id_
        self.handle = gateway.folder / f"{id_}.net"
        netns.create(self.handle)
        interception.lay(self.handle)
        gateway.link.add(id_, self.handle)

    def inside(self, work: Callable[[], Any]) -> Any:
        return interception.inside(self.handle, work)

    def remove(self) -> None:
        self.gateway.link.remove(self.id)
        netns.remove(self.handle)

    def ask(self, name: str, kind: int = dns.A, server: str = "198.18.0.1", timeout: float = 5) -> bytes:
        """The raw answer to a DNS question."""
        return self.ask_raw(dns.query(7, name, kind), server, timeout)

    def ask_raw(self, message: bytes, server: str = "198.18.0.1", timeout: float = 5) -> bytes:
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        with self.inside(lambda: socket.socket(family, socket.SOCK_DGRAM)) as link:
            link.settimeout(timeout)
            link.sendto(message, (server, 53))
            return link.recv(4096)

    def address_of(self, name: str) -> str:
        found = dns.parse_answer(self.ask(name), 7, name, dns.A)
        return str(found.addresses[0])

    def connect(self, host: str, port: int, *, look_up: bool = True, timeout: float = 10) -> socket.socket:
        literal = not look_up or host.replace(".", "").isdigit() or ":" in host
        address = host if literal else self.address_of(host)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET

        def make() -> socket.socket:
            link = socket.socket(family, socket.SOCK_STREAM)
            link.settimeout(timeout)
            link.connect((address, port))
            return link

        return self.inside(make)

    def tls(
        self, host: str, port: int = 443, *, sni: str | None = "", alpn: list[str] | None = None, **words: Any
    ) -> ssl.SSLSocket:
        """A TLS connection that trusts the gateway's authority; `sni` None sends none."""
        context = ssl.create_default_context(cadata=self.gateway.control.facts["authority"])
        name = host if sni == "" else sni
        if name is None:
            context.check_hostname = False
        if alpn:
            context.set_alpn_protocols(alpn)
        return context.wrap_socket(self.connect(host, port, **words), server_hostname=name)

    def fetch(
        self, url: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b"", **words: Any
    ) -> Response:
        """One request on a connection of its own."""
        scheme, _, rest = url.partition("://")
        authority, slash, path = rest.partition("/")
        host, _, port = authority.partition(":")
        number = int(port or {"https": 443, "http": 80}[scheme])
        lines = [f"{method} /{path if slash else ''} HTTP/1.1", f"Host: {authority}"]
        fields = dict(headers or {})
        if body and "Transfer-Encoding" not in fields:
            fields["Content-Length"] = str(len(body))
        lines += [f"{name}: {value}" for name, value in fields.items()]
        raw = "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + body
        link = self.tls(host, number, **words) if scheme == "https" else self.connect(host, number, **words)
        with link:
            link.sendall(raw)
            return read_response(link, bodiless=method == "HEAD")

    def cut(self, host: str, port: int, data: bytes = b"", *, look_up: bool = True) -> bytes:
        """What comes back on a connection that the gateway is to end, whenever the reset comes."""
        got = b""
        with suppress(ConnectionError), self.connect(host, port, look_up=look_up) as link:
            if data:
                link.sendall(data)
            while more := link.recv(65536):
                got += more
        return got

    def raw(self, host: str, port: int, data: bytes, *, tls: bool = True) -> Response:
        """Sends bytes as they are and reads what comes."""
        with self.tls(host, port) if tls else self.connect(host, port) as link:
            link.sendall(data)
            return read_response(link)


class Response:
    """What came back: `status` 0 when nothing did."""

    def __init__(self, head: bytes, body: bytes, rest: bytes = b"") -> None:
        self.head, self.body, self.rest = head, body, rest
        self.status = int(head.split(b" ", 2)[1]) if head else 0

    @property
    def code(self) -> str:
        """The code of a refusal, or empty."""
        with suppress(ValueError):
            reason = json.loads(self.body)
            if isinstance(reason, dict) and "ruleKey" in reason:
                return str(reason["code"])
        return ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def field(self, name: str) -> str | None:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name.encode():
                return value.strip().decode("latin-1")
        return None


def read_response(link: socket.socket, *, bodiless: bool = False) -> Response:
    """One response; whatever is there when the connection ends early."""
    data = b""
    with suppress(ConnectionError, ssl.SSLError):
        while b"\r\n\r\n" not in data:
            more = link.recv(65536)
            if not more:
                return Response(b"", data)
            data += more
    head, found, body = data.partition(b"\r\n\r\n")
    response = Response(head if found else b"", b"")
    with suppress(ConnectionError, ssl.SSLError, TimeoutError):
        if bodiless or response.status in (101, 204, 304) or not head:
            response.rest = body
        elif response.field("transfer-encoding") == "chunked":
            response.body, response.rest = _chunks(link, body)
        else:
            length = int(response.field("content-length") or -1)
            while length < 0 or len(body) < length:
                more = link.recv(65536)
                if not more:
                    break
                body += more
            response.body = body
    return response


def _chunks(link: socket.socket, data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        while b"\r\n" not in data:
            data += _more(link)
        size, _, data = data.partition(b"\r\n")
        while len(data) < int(size, 16) + 2:
            data += _more(link)
        body, data = body + data[: int(size, 16)], data[int(size, 16) + 2 :]
        if int(size, 16) == 0:
            return body, data


def _more(link: socket.socket) -> bytes:
    more = link.recv(65536)
    if not more:
        raise ConnectionError("cut in the middle of a chunk")
    return more


class GatewayProcess:
    """The process under test."""

    def __init__(self, world: World, folder: Path, **options: Any) -> None:
        self.world, self.folder = world, folder
        folder.chmod(0o755)
        self.visitors = socket.create_server(("127.0.0.1", 0))
        self.base = Base.parse(f"http://*.localhost:{self.visitors.getsockname()[1]}")
        self.data = folder / "gateway"
        self.data.mkdir(mode=0o700, exist_ok=True)
        os.chown(self.data, GATEWAY_UID, GATEWAY_UID)
        self.socket_path = folder / "gateway.sock"
        self.log = folder / "gateway.log"
        self._options = {
            "data": str(self.data), "control_uid": CONTROL_UID, "resolver": RESOLVER,
            "extra_roots": str(world.authority.roots), "connections_per_second": 1000.0, "connection_burst": 1000,
            **options,
        }  # fmt: skip
        world.authority.roots.chmod(0o644)
        world.folder.chmod(0o755)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket_path.unlink(missing_ok=True)
        self._listener.bind(str(self.socket_path))
        self.socket_path.chmod(0o666)
        self._listener.listen(16)
        self.start()
        self.link = GatewayLink(self.socket_path)
        self.link.start()
        self.control = Control(self.socket_path)
        self._sandboxes: list[Sandbox] = []

    def start(self) -> None:
        duplicate, visitors = os.dup(self._listener.fileno()), os.dup(self.visitors.fileno())
        base = f"{self.base.scheme}://*.{self.base.domain}{self.base.port}"
        own = {"listener": duplicate, "preview_listener": visitors, "preview_base": base}
        words = json.dumps({**self._options, **own})
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _RUN.format(uid=GATEWAY_UID), str(self.world.inner), words],
                stdout=log, stderr=log, pass_fds=[duplicate, visitors],
            )  # fmt: skip
        os.close(duplicate)
        os.close(visitors)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def sandbox(self, id_: str, *, project: str | None = "acme", path: str = "") -> Sandbox:
        made = Sandbox(self, id_)
        self._sandboxes.append(made)
        deadline = time.monotonic() + 5
        while id_ not in self.control.attached():
            assert time.monotonic() < deadline, "the sandbox was not attached"
            time.sleep(0.02)
        if project is not None:
            self.control.bind(id_, project, path)
        return made

    def remove_all(self) -> None:
        for sandbox in self._sandboxes:
            with suppress(OSError):
                sandbox.remove()
        self._sandboxes.clear()

    def memory(self) -> int:
        """Resident bytes of the process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the gateway is gone")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def close(self) -> None:
        self.remove_all()
        self.control.close()
        self.link.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(10)
        self._listener.close()
        self.visitors.close()
        shutil.rmtree(self.data, ignore_errors=True)
