"""A client's session, in the place of engineio's `AsyncSocket`, and what the sockets of its namespaces need of it.

The events of a session are jobs, which one task carries out in order: as in engineio, a message waits while the handler of `connect` runs.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from engineio.packet import MESSAGE, Packet

from .entries import WORKER, dumps

if TYPE_CHECKING:
    from .link import Link

#: Longest time that a session's messages may wait for a handler, in seconds. The session is closed then: its messages hold up others.
WAIT_S = 10
#: Reason of `disconnect` for sockets that continue in another process.
MOVED = "server shutting down"
#: Key of the environment that is `True` while `connect` is called for a socket that continues.
RECOVERED = "stentor.recovered"
#: Stentor keeps no more of a socket's data, and of its `auth`.
_DATA_BYTES_MAX = 64 << 10


class Session:
    upgrading = False
    connected = True

    def __init__(self, link: Link, handle: int, handshake: dict[str, Any]) -> None:
        self._link = link
        self._jobs: deque[Callable[[], Awaitable[None]]] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self.handle = handle
        self.sid: str = handshake["sid"]
        self.upgraded: bool = handshake["transport"] == "websocket"
        self.environ = environ(handshake)
        #: The data of `sio.session()`, by namespace.
        self.session: dict[str, Any] = {}
        #: What the client sent with its last CONNECT.
        self.auth: Any = None
        #: Sockets that are being rebuilt, as in RESUME, by namespace.
        self.kept: dict[str, dict[str, Any]] = {}
        #: Namespaces whose sockets are connected: their clients have been told.
        self.accepted: set[str] = set()
        #: `True` while Stentor has the session for this worker: otherwise, it gets no entries.
        self.is_alive = True
        self.closing = False
        self.closed = False
        #: Set when the session has ended for python-socketio.
        self.gone = asyncio.Event()
        #: The session's own task, and the tasks of its handlers.
        self.tasks: set[asyncio.Task[Any]] = set()

    # Jobs.

    def put(self, job: Callable[[], Awaitable[None]]) -> None:
        """Adds a job. It runs in this turn, or when the earlier ones are done."""
        self._jobs.append(job)
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
            self.tasks.add(self._runner)
            self._runner.add_done_callback(self.tasks.discard)
        elif self.is_alive:
            self._link.channel.hold(self)
            self._overdue = self._overdue or asyncio.get_running_loop().call_later(WAIT_S, self._give_up)

    async def _run(self) -> None:
        try:
            while self._jobs:
                job = self._jobs.popleft()
                if not self._jobs:
                    # The last message doesn't wait any more: its handler begins in this turn.
                    self._release()
                try:
                    await job()
                except Exception:
                    self._link.logger.exception("a client's session is closed because of an exception")
                    await self.close()
        finally:
            self._runner = None
            self._release()

    def _release(self) -> None:
        """No messages wait any more."""
        self._link.channel.release(self)
        if self._overdue:
            self._overdue.cancel()
            self._overdue = None

    def _give_up(self) -> None:
        if not self.is_alive:
            return
        self._link.logger.error("a client's session is closed: its messages waited %d s for a handler of an earlier one", WAIT_S)
        self.refuse()

    def refuse(self) -> None:
        """Closes a session that can't go on here. Its client connects again."""
        self._link.channel.write(WORKER["CLOSE"], self.handle, True)
        self.lose("server disconnect")

    @property
    def is_busy(self) -> bool:
        """`True` while messages wait, or a socket is being connected."""
        return self._runner is not None

    # From Stentor.

    async def open(self) -> None:
        """The client has connected."""
        sio = self._link.sio
        sio.eio.sockets[self.sid] = self
        await sio.eio._trigger_event("connect", self.sid, self.environ, run_async=False)

    async def resume(self, sockets: list[dict[str, Any]], former: Session | None) -> None:
        """Rebuilds the sockets that another process had: `connect` is called again, but the client notices nothing."""
        if former:
            await former.gone.wait()
        self.kept = {socket["nsp"]: socket for socket in sockets}
        await self.open()
        for socket in sockets:
            if not self.is_alive:
                return
            namespace = socket["nsp"]
            if socket.get("disconnected"):
                del self.kept[namespace]
                self._link.manager.lost(self, namespace)
                continue
            # Without data, the client was still waiting for its connection: it is told of it as usual.
            if "session" in socket["data"]:
                self.session[namespace] = socket["data"]["session"]
                self.environ[RECOVERED] = socket["recovered"] = True
            try:
                await self._link.sio._handle_connect(self.sid, namespace, socket.get("auth"))
            finally:
                self.environ.pop(RECOVERED, None)
                del self.kept[namespace]

    async def deliver(self, messages: list[str | bytes]) -> None:
        """The client has sent a packet with its attachments."""
        for message in messages:
            if self.closing:
                return
            await self._link.sio.eio._trigger_event("message", self.sid, message, run_async=False)

    async def end(self, reason: str) -> None:
        """The session has ended for this worker."""
        # Handlers of the last messages begin before.
        await asyncio.sleep(0)
        self.is_alive = False
        await self._finish(reason)

    def lose(self, reason: str) -> None:
        """Stentor has the session no more: ends it after the handler that is running, without its waiting messages."""
        self.is_alive = False
        self._jobs.clear()
        self._release()
        self.put(partial(self.end, reason))

    async def _finish(self, reason: str) -> None:
        if self.closing:
            return
        self.closing = True
        try:
            await self._link.sio.eio._trigger_event("disconnect", self.sid, reason, run_async=False)
        finally:
            if self.is_alive:
                self._link.channel.write(WORKER["CLOSE"], self.handle, False)
                self.is_alive = False
            self.closed = True
            self._jobs.clear()
            self._link.forget(self)
            self.gone.set()

    # As in engineio.

    async def send(self, packet: Packet) -> None:
        data = packet.data if isinstance(packet.data, (str, bytes, bytearray)) else packet.encode()[1:]
        if packet.packet_type == MESSAGE:
            self.send_messages([data])

    async def close(self, wait: bool = True, abort: bool = False, reason: str | None = None) -> None:
        await self._finish(reason or "server disconnect")

    def send_messages(self, messages: Sequence[str | bytes | bytearray]) -> None:
        """Sends the parts of one packet."""
        if self.is_alive:
            self._link.channel.write(WORKER["SEND"], self.handle, 0, messages)

    # Kept for the next worker.

    def state(self) -> dict[str, Any]:
        """What the client sent with CONNECT. Without it, if it can't be kept: a client chooses it."""
        return {} if self._json("auth", self.auth) is None else {"auth": self.auth}

    def data(self, namespace: str) -> str | None:
        """The data of a socket that is connected. `None` if they can't be kept."""
        return self._json("session", {"session": self.session.get(namespace, {})})

    def _json(self, what: str, value: Any) -> str | None:
        """JSON for Stentor. `None` if it can't be kept: it isn't JSON, or too long."""
        try:
            text = dumps(value)
            if len(text) <= _DATA_BYTES_MAX:
                return text
            reason = f"it has {len(text)} bytes of JSON; the maximum is {_DATA_BYTES_MAX}"
        except (TypeError, ValueError, RecursionError) as error:
            reason = str(error)
        self._link.warn_once(what, f"the {what} of a socket can't be kept for the next worker: {reason}")
        return None


def environ(handshake: dict[str, Any]) -> dict[str, Any]:
    """The WSGI environment of a client's first request."""
    path, _, query = handshake["url"].partition("?")
    found = {
        "wsgi.input": io.BytesIO(), "wsgi.errors": sys.stderr, "wsgi.version": (1, 0), "wsgi.async": True, "wsgi.multithread": False,
        "wsgi.multiprocess": False, "wsgi.run_once": False, "wsgi.url_scheme": "https" if handshake["encrypted"] else "http",
        "SERVER_SOFTWARE": "stentor", "REQUEST_METHOD": handshake["method"], "QUERY_STRING": query, "RAW_URI": handshake["url"],
        "SCRIPT_NAME": "", "PATH_INFO": unquote(path), "SERVER_PROTOCOL": f"HTTP/{handshake['httpVersion']}",
        "REMOTE_ADDR": handshake["address"], "REMOTE_PORT": str(handshake["port"]),
        "SERVER_NAME": handshake["localAddress"], "SERVER_PORT": str(handshake["localPort"]),
    }  # fmt: skip
    for name, value in handshake["headers"].items():
        key = name.upper().replace("-", "_")
        found[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value if isinstance(value, str) else ", ".join(value)
    return found
