"""Owns a model server of the tests' own: OpenAI's chat protocol over HTTP, a real process with scripted answers.

Started by `ModelServer`. A script belongs to the text of a person's message: `POST /script {"when": …, "steps": […]}`;
each request in whose last scripted message that text stands takes the next step. `GET /asked` tells what was asked.
Invariant: it decides nothing; a request without a script is answered with 418.

Steps: `{"text": …, "pieces"?: n, "pause"?: s}` · `{"status": n, "body"?: …, "location"?: url}` · `{"hang": s}` ·
`{"garbage": text}` · `{"cut": text}` (breaks off) · `{"unfinished": text}` (ends without saying so) ·
`{"repeat": text, "times": n}`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

scripts: dict[str, list[dict[str, Any]]] = {}
asked: list[dict[str, Any]] = []
lock = threading.Lock()
active = most_active = 0


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["content-length"])))

    def _json(self, value: Any, status: int = 200, location: str | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        if location is not None:
            self.send_header("location", location)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        """What was asked, and how many at once."""
        with lock:
            self._json({"asked": asked, "mostActive": most_active, "active": active})

    def do_POST(self) -> None:
        """A script, or a conversation to go on with."""
        global active, most_active
        body = self._body()
        if self.path == "/script":
            with lock:
                scripts[body["when"]] = list(body["steps"])
            self._json({})
            return
        with lock:
            asked.append({"path": self.path, "key": self.headers.get("authorization"), **body})
            active += 1
            most_active = max(most_active, active)
        try:
            self._answer(_next_step(body["messages"]))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with lock:
                active -= 1

    def _answer(self, step: dict[str, Any] | None) -> None:
        if step is None:
            self._json({"error": {"message": "no script for this"}}, 418)
        elif "status" in step:
            body = step.get("body", {"error": {"message": "scripted failure"}})
            self._json(body, step["status"], step.get("location"))
        elif "hang" in step:
            time.sleep(step["hang"])
            self.close_connection = True
        elif "garbage" in step:
            self._begin("text/event-stream")
            self._chunk(step["garbage"].encode())
            self._chunk(b"")
        else:
            self._stream(step)

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _piece(self, text: str | None, reason: str | None = None) -> None:
        choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": reason}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
        self._chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def _stream(self, step: dict[str, Any]) -> None:
        self._begin("text/event-stream")
        if "repeat" in step:
            for _ in range(step["times"]):
                self._piece(step["repeat"])
        else:
            text = step.get("text", step.get("cut", step.get("unfinished", "")))
            count = step.get("pieces", 3)
            size = max(1, -(-len(text) // count))
            for at in range(0, len(text), size):
                self._piece(text[at : at + size])
                time.sleep(step.get("pause", 0))
        if "cut" in step:
            self.wfile.flush()
            self.close_connection = True
            return
        if "unfinished" not in step:
            self._piece(None, "stop")
            self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")


def _next_step(messages: list[dict[str, str]]) -> dict[str, Any] | None:
    for message in reversed(messages):
        text = message["content"].partition("] ")[2]
        if message["role"] == "user" and text in scripts:
            with lock:
                steps = scripts[text]
                return steps.pop(0) if len(steps) > 1 else steps[0]
    return None


class ModelServer:
    """The process, and how tests tell it what to say."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def script(self, when: str, *steps: dict[str, Any] | str) -> None:
        """What to answer when somebody says `when`, one step after another; the last one stays."""
        told = [{"text": step} if isinstance(step, str) else step for step in steps]
        self._call("/script", {"when": when, "steps": told})

    def told(self) -> dict[str, Any]:
        """What was asked so far, how many ask now, and how many did at most."""
        return self._call("/asked")

    def asked(self, text: str) -> list[dict[str, Any]]:
        """The requests in which somebody said this."""
        return [one for one in self.told()["asked"] if any(text in m["content"] for m in one["messages"])]

    def _call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(self.url + path, data), timeout=10) as answer:
            return json.load(answer)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()
