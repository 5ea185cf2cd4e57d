"""Entries in both directions over a WebSocket: sends a frame once per turn, acknowledges, and continues after a broken connection.

    connecting ── HELLO, WELCOME ──► up ── connection ends ──► lost ── WELCOME, resumed ──► up: both sides send again what isn't acknowledged
                                                                 └─── WELCOME, new ───────► up: all sessions are gone (`Link.reset`)
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import struct
import time
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from .entries import HEADER_BYTES, SERVER, VERSION, WORKER, Entry, FrameError, Reader, by_type
from .frames import Incoming, Outgoing, in_header

if TYPE_CHECKING:
    from .link import Link

_SUBPROTOCOL = Subprotocol("stentor.link.v1")
#: Maximum length of a received frame in bytes. A session's messages may be longer than what a worker may send.
_RECEIVED_BYTES_MAX = 256 << 20
#: While there is no connection, entries of at most this many bytes wait for one. With one, the worker reads no more above it.
_WAITING_BYTES_MAX = 8 << 20
#: Longest time until an acknowledgement that has nothing to travel with, in seconds.
_ACK_S = 0.02
#: Turns of the event loop after which the handlers of a frame's messages have run up to their first `await`: one for the session's task, and one
#: for the tasks of its handlers.
_TURNS = 2
#: Delay before the next attempt, in seconds: at first none, since Stentor waits only 200 ms for the same process; then doubled each time.
_RETRY_S, _RETRY_S_MAX = 0.025, 1.0
#: After a connection that was shorter, the first attempt has a delay, too.
_SHORT_S = 1.0
_REFUSED_ATTEMPTS = 6
_OPEN_S, _CLOSE_S = 10, 1
_RESPONSE_CHARS_MAX = 200
#: Codes after which the worker doesn't try again: its configuration is wrong.
_FINAL = frozenset(("version", "token", "app_unknown", "options_conflict"))
_TYPES = by_type(SERVER)


class LinkError(Exception):
    """An error of the link, for people: one line. `code`: one of Stentor (`token`, `protocol`, …), or `connection`, `http`, `limit`, `closed`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_final(self) -> bool:
        """`True` if another attempt would fail as well."""
        return self.code in _FINAL


def link_url(address: str, app: str | None) -> tuple[str, str | None]:
    """The URL of the link for a server's address, `ws://HOST:PORT`, `http://…` or `ws+unix:/PATH`, and the path of the Unix socket, if it is one."""
    query = "" if app is None else f"?app={quote(app, safe='')}"
    if address.startswith("ws+unix:"):
        return f"ws://localhost/link/v1{query}", address.removeprefix("ws+unix:")
    url = urlsplit(address)
    scheme = {"http": "ws", "https": "wss"}.get(url.scheme, url.scheme)
    if scheme not in ("ws", "wss") or not url.netloc:
        raise ValueError(f"{address!r} isn't an address of Stentor: write ws://HOST:PORT, wss://HOST:PORT or ws+unix:/PATH")
    return f"{scheme}://{url.netloc}{url.path.rstrip('/')}/link/v1{query}", None


class Channel:
    def __init__(self, url: str, app: str | None, token: str | None, worker: Link) -> None:
        self._url, self._unix_path = link_url(url, app)
        self._token = token
        self._worker = worker
        self._incoming = Incoming()
        self._outgoing = Outgoing()
        self._attempts = 0
        #: Time at which Stentor accepted the worker last.
        self._accepted_at = -math.inf
        self._is_closing = False
        #: Set when there may be something to send; when something was sent; when Stentor has acknowledged something.
        self._wake, self._sent, self._acknowledged = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._ack_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._socket: ClientConnection | None = None
        #: Number of the link. `None`: there is none.
        self.number: int | None = None
        #: `True` between WELCOME and the end of the connection.
        self.is_up = False

    # To Stentor.

    def write(self, entry: Entry, *fields: Any) -> None:
        """Appends an entry. It is sent at the end of the turn. Raises `ValueError` if it can't be sent."""
        self._outgoing.write(entry.pack(*fields))
        self._schedule()
        if not self.is_up and self._outgoing.kept_bytes > _WAITING_BYTES_MAX:
            self._end(LinkError("limit", f"without a connection, entries of more than {_WAITING_BYTES_MAX} bytes were dropped"))

    def _schedule(self) -> None:
        asyncio.get_running_loop().call_soon(self._wake.set)

    async def _send_all(self, socket: ClientConnection) -> None:
        """Sends what is pending, with an acknowledgement, or an acknowledgement alone."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._outgoing.is_pending:
                    for frame in self._outgoing.poll(self._incoming.acknowledge()):
                        await socket.send(frame)
                elif self._incoming.is_unacknowledged:
                    await socket.send(struct.pack("<II", 0, in_header(self._incoming.acknowledge())))
                self._sent.set()
        finally:
            self._sent.set()

    # The connection.

    def open(self) -> asyncio.Task[None]:
        """Connects, and connects again until `close`. Returns the task that does it."""
        self._task = asyncio.create_task(self._run())
        return self._task

    async def _run(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        options: dict[str, Any] = {
            "subprotocols": [_SUBPROTOCOL], "additional_headers": headers, "compression": None, "max_size": _RECEIVED_BYTES_MAX,
            "open_timeout": _OPEN_S, "close_timeout": _CLOSE_S,
        }  # fmt: skip
        while not self._is_closing:
            try:
                if self._unix_path is None:
                    connecting = connect(self._url, proxy=None, **options)
                else:
                    connecting = unix_connect(self._unix_path, self._url, **options)
                async with connecting as self._socket:
                    await self._talk(self._socket)
            except InvalidStatus as error:
                status = error.response.status_code
                body = " ".join((error.response.body or b"").decode(errors="replace").split())[:_RESPONSE_CHARS_MAX]
                advice = "; is this the admin address, and does the configuration have [[links]]?" if status == 404 else ""
                self._worker.failed(LinkError("http", f"{self._url} answers {status} {body}{advice}"))
            except (OSError, WebSocketException, TimeoutError) as error:
                self._worker.failed(LinkError("connection", f"can't connect to {self._url}: {error or type(error).__name__}"))
            self.is_up, self._socket = False, None
            if self._is_closing:
                return
            first = _RETRY_S if time.monotonic() - self._accepted_at < _SHORT_S else 0
            delay = min(_RETRY_S_MAX, _RETRY_S * 2**self._attempts) * random.uniform(0.5, 1) if self._attempts else first
            self._attempts = min(self._attempts + 1, 10)
            await asyncio.sleep(delay)

    async def _talk(self, socket: ClientConnection) -> None:
        """Exchanges frames until the connection ends. Errors of a connection that has been up aren't reported."""
        hello = {"v": [VERSION], "link": self.number, "received": in_header(self._incoming.arrived), **self._worker.hello()}
        await socket.send(bytes(HEADER_BYTES) + WORKER["HELLO"].pack(hello))
        sending: asyncio.Task[None] | None = None
        try:
            async for data in socket:
                self._frame(data)
                if not self.is_up:
                    return
                sending = sending or asyncio.create_task(self._send_all(socket))
                # Unless Stentor reads, this worker reads no more.
                while self._outgoing.is_pending and self._outgoing.kept_bytes > _WAITING_BYTES_MAX and not sending.done():
                    self._sent.clear()
                    await self._sent.wait()
        except FrameError as error:
            self._end(LinkError("protocol", f"Stentor broke the protocol: {error}"))
        except (OSError, WebSocketException):
            if not self.is_up:
                raise
        finally:
            if sending:
                sending.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError, WebSocketException):
                    await sending

    async def close(self) -> None:
        """Ends the connection for good."""
        self._is_closing = True
        if self._socket:
            await self._socket.close()
        elif self._task:
            self._task.cancel()
        if self._task:
            await asyncio.wait((self._task,))

    async def acknowledged(self, seconds: float) -> None:
        """Waits until Stentor has handled all entries, but no longer than `seconds`, and not without a connection."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.is_up and not self._outgoing.is_acknowledged:
                    self._acknowledged.clear()
                    await self._acknowledged.wait()

    # From Stentor.

    def _frame(self, frame: bytes | str) -> None:
        if isinstance(frame, str):
            raise FrameError("a message is a text")
        reader = Reader(frame, _TYPES)
        if not self.is_up:
            return self._first(reader)
        if reader.number != 0:
            self._incoming.arrive(reader.number, len(frame))
        self._outgoing.acknowledge(reader.ack)
        self._acknowledged.set()
        for entry, fields in reader:
            if entry.name == "ERROR":
                return self._refused(fields["error"], "Stentor has ended the link")
            if entry.name == "NOP":
                self._incoming.hurry()
            else:
                try:
                    self._worker.entry(entry.name, fields)
                except Exception:
                    self._worker.logger.exception("%s was dropped because of an exception", entry.name)
        if reader.number != 0:
            self._settle(self._incoming, self._incoming.arrived, _TURNS)

    def _settle(self, incoming: Incoming, count: int, turns: int) -> None:
        """Counts a frame as handled after some turns of the event loop."""
        loop = asyncio.get_running_loop()
        if turns > 0:
            loop.call_soon(self._settle, incoming, count, turns - 1)
            return
        incoming.settled = count
        if incoming.is_urgent:
            self._wake.set()
        elif self._ack_timer is None:
            # An acknowledgement alone can wait for entries to travel with.
            self._ack_timer = loop.call_later(_ACK_S, self._acknowledge)

    def _acknowledge(self) -> None:
        self._ack_timer = None
        self._wake.set()

    def _first(self, reader: Reader) -> None:
        """The first frame of a connection: WELCOME or ERROR."""
        entry, fields = next(iter(reader), (None, {}))
        if entry is not None and entry.name == "ERROR":
            return self._refused(fields["error"], "Stentor refuses this worker")
        if entry is None or entry.name != "WELCOME":
            raise FrameError(f"the first frame has {entry.name if entry else 'no entry'}")
        welcome = fields["welcome"]
        if welcome["resumed"]:
            self._outgoing.reconnect(welcome["received"])
            self._incoming.reconnect()
        elif self.number is not None:
            self._reset()
        self.number = welcome["link"]
        self.is_up = True
        self._attempts, self._accepted_at = 0, time.monotonic()
        self._worker.up(welcome)
        self._wake.set()

    def _refused(self, error: dict[str, str], what: str) -> None:
        refusal = LinkError(error["code"], f"{what}: {error['message']}")
        self._attempts = max(self._attempts, _REFUSED_ATTEMPTS)
        self._is_closing = refusal.is_final
        self._end(refusal)

    def _end(self, error: LinkError) -> None:
        """Ends the link because of an error. The next connection begins another one."""
        self._reset()
        self._worker.failed(error)

    def _reset(self) -> None:
        self.number = None
        self.is_up = False
        self._acknowledged.set()
        self._incoming, self._outgoing = Incoming(), Outgoing()
        self._worker.reset()

    # Sessions whose messages wait.

    def hold(self, session: Hashable) -> None:
        """A session's messages of the current frame wait: the frame isn't acknowledged."""
        self._incoming.hold(session)

    def release(self, session: Hashable) -> None:
        """A session's messages don't wait any more."""
        if self._incoming.release(session):
            self._schedule()

    @property
    def kept_bytes(self) -> int:
        """Bytes of entries that Stentor hasn't handled."""
        return self._outgoing.kept_bytes
