"""The public object: connects a server of python-socketio to Stentor, and hands its sessions over."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

import socketio
from socketio import packet
from socketio.async_manager import AsyncManager

from .channel import Channel, LinkError
from .entries import END, WORKER
from .manager import Manager, Messages, TooManyError
from .session import MOVED, Session

_ON_CRASH = ("disconnect", "redeliver", "drop")
#: SIGTERM is that of systemd and Kubernetes, SIGINT that of the terminal.
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Longest time for Stentor to confirm that no further messages follow, in seconds.
_DRAIN_S = 5.0
#: Longest time for Stentor to confirm that this worker leaves, in seconds.
_FAREWELL_S = 1.0
#: Longest time for the handlers of `disconnect` of sessions that continue elsewhere, in seconds.
_RELEASE_S = 5.0
#: Turns of the event loop after which the handlers of the last messages have begun.
_TURNS = 3


class Link:
    """The link of a worker. See `attach`."""

    def __init__(
        self, sio: socketio.AsyncServer, url: str, *, token: str | None, app: str | None, name: str | None, on_crash: str | None, signals: bool, settle: float
    ) -> None:
        self.sio = sio
        self.logger = logging.getLogger("stentor_socketio")
        self.channel = Channel(url, app, token, self)
        self.manager = Manager(self)
        #: Number of workers that take sessions, including this one.
        self.peers = 1
        self._name = name or f"{socket.gethostname()}-{os.environ.get('NODE_APP_INSTANCE', 0)}"
        self._instance = secrets.token_hex(8)
        self._on_crash = on_crash
        self._signals = signals
        self._taken: list[signal.Signals] = []
        self._settle = settle
        #: Sessions by handle.
        self._sessions: dict[int, Session] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._said: set[str] = set()
        self._is_stopped = False
        self._up = asyncio.Event()
        self._error: LinkError | None = None
        self._running: asyncio.Task[None] | None = None
        self._drained: asyncio.Event | None = None
        self._handover: asyncio.Task[None] | None = None

    # For the application.

    async def listen(self) -> None:
        """Connects to Stentor, and again whenever the connection breaks. Returns when clients can connect. Raises `LinkError` if Stentor refuses
        this worker."""
        if self._is_stopped:
            raise LinkError("closed", "the link has ended: create another server")
        if self._running is None:
            self.manager.declare()
            if self._signals:
                self._take_signals()
            self._running = self.channel.open()
        waiting = asyncio.create_task(self._up.wait())
        await asyncio.wait((waiting, self._running), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not self._up.is_set():
            await self.wait()
            raise LinkError("closed", "the link has ended")

    async def wait(self) -> None:
        """Waits until the link has ended. Raises `LinkError` if Stentor doesn't accept this worker any more."""
        if self._running:
            await asyncio.wait((self._running,))
            if not self._running.cancelled():
                self._running.result()
        if self._error:
            raise self._error

    async def handover(self, *, settle: float | None = None, hook: Callable[[], Awaitable[None]] | None = None) -> None:
        """Gives all sessions to other workers, or to the next process, and ends the link. Clients notice nothing.

        `settle` is the longest time for handlers that are running, in seconds. `hook` is awaited after it.
        """
        if self._handover is None:
            self._handover = asyncio.create_task(self._hand_over(self._settle if settle is None else settle, hook))
        await asyncio.shield(self._handover)

    async def close(self) -> None:
        """Disconnects this worker's clients, and ends the link. Without effect after a handover."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self.channel.is_up:
            self.channel.write(WORKER["BYE"], {"mode": "stop"})
        await self._end_all("server disconnect")
        await self._leave(None)

    def stats(self) -> dict[str, Any]:
        """Numbers for metrics."""
        return {
            "is_up": self.channel.is_up, "link": self.channel.number, "peers": self.peers, "sessions": len(self._sessions),
            "unacknowledged_bytes": self.channel.kept_bytes,
        }  # fmt: skip

    # The channel.

    def hello(self) -> dict[str, Any]:
        eio = self.sio.eio
        options = {
            "pingInterval": round(eio.ping_interval * 1000), "pingTimeout": round(eio.ping_timeout * 1000),
            "maxHttpBufferSize": eio.max_http_buffer_size, "transports": list(eio.transports), "allowUpgrades": eio.allow_upgrades,
            "allowEIO3": False,
        }  # fmt: skip
        parser = "json" if self.sio.packet_class.uses_binary_events else "opaque"
        return {"name": self._name, "instance": self._instance, "parser": parser, "options": options, "on_crash": self._on_crash}

    def up(self, welcome: dict[str, Any]) -> None:
        self.peers = welcome["servers"]
        self._said.clear()
        self._up.set()

    def reset(self) -> None:
        """The link has ended: its sessions go to other workers, or are closed."""
        self.manager.reset()
        for session in self._sessions.values():
            session.lose(MOVED)
        self._sessions.clear()
        if self._drained:
            self.channel.write(WORKER["BYE"], {"mode": "handover"})

    def failed(self, error: LinkError) -> None:
        if self._is_stopped:
            return
        if error.is_final:
            self._error = error
            self._is_stopped = True
            self._ignore_signals()
        if not error.is_final or self._up.is_set():
            self.warn_once(str(error), str(error))

    def warn_once(self, subject: str, line: str) -> None:
        """Logs a line. Attempts repeat: none with this subject is logged again until the link has been up."""
        if subject not in self._said:
            self._said.add(subject)
            self.logger.warning("%s", line)

    def entry(self, name: str, fields: dict[str, Any]) -> None:
        session = self._sessions.get(fields.get("handle", 0))
        match name:
            case "OPEN":
                self._open(fields)
            case "RESUME":
                self._resume(fields["handle"], fields["session"])
            case "MESSAGE" if session:
                session.put(partial(session.deliver, fields["messages"]))
            case "CLOSED" if session:
                session.put(partial(session.end, "server disconnect" if fields["reason"] == "forced close" else fields["reason"]))
            case "UPGRADE" if session:
                session.upgraded = True
            case "RELEASE" if session:
                self._start(self._release_soon(session))
            case "MEMBERS":
                change = partial(self.manager.members, namespace=self.manager.named(fields["namespace"]), change=fields["change"], rooms=fields["rooms"])
                self._put_all(fields["handles"], change)
            case "KICK":
                self._put_all(fields["handles"], partial(self.manager.kick, namespace=self.manager.named(fields["namespace"]), closes=fields["closes"]))
            case "RELAYED":
                self._start(self.manager.relayed(fields["link"], fields["body"], fields["messages"]))
            case "VACANT":
                self.manager.vacated(fields["namespace"])
            case "PEERS":
                self.peers = fields["count"]
            case "DRAINED" if self._drained:
                self._drained.set()

    def _open(self, fields: dict[str, Any]) -> None:
        handle, handshake = fields["handle"], fields["handshake"]
        if handshake["protocol"] != 4:
            self.warn_once("protocol", "a client of Socket.IO 1 or 2 was refused: python-socketio 5 doesn't know its protocol")
            return self.channel.write(WORKER["CLOSE"], handle, True)
        if fields["ask"]:
            self.channel.write(WORKER["ACCEPT"], handle, {})
        session = self._sessions[handle] = Session(self, handle, handshake)
        session.put(session.open)

    def _resume(self, handle: int, description: dict[str, Any]) -> None:
        session = self._sessions[handle] = Session(self, handle, description)
        try:
            for kept in description["sockets"]:
                self.manager.index(kept["nsp"])
        except TooManyError as error:
            return self.manager.refuse(session, error)
        # A former link may have had the session, and its handlers may still be running.
        session.put(partial(session.resume, description["sockets"], self.sio.eio.sockets.get(session.sid)))

    def _put_all(self, handles: Iterable[int], change: Callable[[Session], Awaitable[None]]) -> None:
        for session in map(self._sessions.get, handles):
            if session:
                session.put(partial(change, session))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Sessions.

    def forget(self, session: Session) -> None:
        """A session has ended for python-socketio."""
        if self._sessions.get(session.handle) is session:
            del self._sessions[session.handle]
        if self.sio.eio.sockets.get(session.sid) is session:
            del self.sio.eio.sockets[session.sid]

    async def _end_all(self, reason: str) -> None:
        """Ends all sessions here. Handlers that take too long keep none."""
        ending = []
        for session in list(self._sessions.values()):
            session.is_alive = False
            ending.append(asyncio.create_task(session.end(reason)))
        if ending:
            await asyncio.wait(ending, timeout=_RELEASE_S)

    async def _finished(self, sessions: Iterable[Session], seconds: float) -> None:
        """Waits until the handlers of sessions have finished, but not forever."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        own = {asyncio.current_task()}
        while busy := {task for session in sessions for task in session.tasks} - own:
            left = end - loop.time()
            if left <= 0:
                return
            await asyncio.wait(busy, timeout=left)

    def _give_back(self, session: Session) -> None:
        """Gives a session's data to Stentor. A session with messages that wait can't be continued elsewhere: it is closed."""
        if session.is_busy:
            self.channel.write(WORKER["CLOSE"], session.handle, True)
            return
        for namespace in self.manager.get_namespaces():
            sid = self.manager.sid_from_eio_sid(session.sid, namespace)
            data = session.data(namespace) if sid and self.manager.is_connected(sid, namespace) else None
            if data is not None:
                self.channel.write(WORKER["RELEASED"], session.handle, self.manager.index(namespace), data)

    async def _release_soon(self, session: Session) -> None:
        """Gives one session back when its last messages have been handled. It stays if a handler needs longer."""
        await self._finished((session,), self._settle)
        if not session.is_alive:
            return
        if session.is_busy:
            return self.channel.write(WORKER["KEPT"], session.handle)
        self._give_back(session)
        session.is_alive = False
        del self._sessions[session.handle]
        self.channel.write(WORKER["RELEASED"], session.handle, END, "")
        await session.end(MOVED)

    # The end.

    async def _hand_over(self, settle: float, hook: Callable[[], Awaitable[None]] | None) -> None:
        if self._is_stopped:
            return
        try:
            if self.channel.number is not None:
                self._drained = asyncio.Event()
                self.channel.write(WORKER["BYE"], {"mode": "handover"})
                try:
                    await asyncio.wait_for(self._drained.wait(), _DRAIN_S)
                except TimeoutError:
                    self.logger.warning("Stentor didn't confirm the handover within %d s", _DRAIN_S)
                    return
            await self._finished(self._sessions.values(), settle)
            if hook:
                await hook()
        finally:
            self._is_stopped = True
            is_drained = self._drained is not None and self._drained.is_set()
            if is_drained:
                for session in self._sessions.values():
                    self._give_back(session)
            await self._end_all(MOVED)
            await self._leave("done" if is_drained else None)

    async def _leave(self, mode: str | None) -> None:
        """Ends the connection, when Stentor has confirmed BYE with this mode."""
        if mode and self.channel.is_up:
            self.channel.write(WORKER["BYE"], {"mode": mode})
        await self.channel.acknowledged(_FAREWELL_S)
        self._ignore_signals()
        await self.channel.close()

    def _take_signals(self) -> None:
        """Hands over on signals, then exits. Unless the application, or its HTTP server, handles the signal itself."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            current = signal.getsignal(number)
            # That of `asyncio.run`, which cancels the main task.
            is_default = current in (signal.SIG_DFL, signal.default_int_handler) or getattr(getattr(current, "func", None), "__module__", "") == "asyncio.runners"
            if is_default:
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    loop.add_signal_handler(number, lambda: self._start(self._exit()))
                    self._taken.append(number)

    def _ignore_signals(self) -> None:
        for number in self._taken:
            asyncio.get_running_loop().remove_signal_handler(number)
        self._taken.clear()

    async def _exit(self) -> None:
        # A second signal changes nothing: terminals may send two.
        if self._handover:
            return
        try:
            await self.handover()
        except Exception:
            self.logger.exception("the handover has failed")
            raise SystemExit(1) from None
        raise SystemExit(0)


def attach(
    sio: socketio.AsyncServer,
    url: str,
    *,
    token: str | None = None,
    app: str | None = None,
    name: str | None = None,
    on_crash: str | None = None,
    signals: bool = True,
    settle: float = 5.0,
) -> Link:
    """Makes the clients of Stentor those of a server of python-socketio. Call it right after the constructor, then `await link.listen()`.

    - `url`: Stentor's admin address, `ws://HOST:PORT`, `wss://HOST:PORT` or `ws+unix:/PATH`.
    - `token`: the application's token, or the admin token.
    - `app`: the application on Stentor. By default the only one.
    - `name`: name of the worker, by default from the host. The process that replaces it has the same.
    - `on_crash`: fate of messages that a crashed process may have handled: `disconnect` their clients, `redeliver` them (at least once), or `drop`
      them (at most once). By default that of Stentor's configuration.
    - `signals`: SIGTERM and SIGINT hand over, then the process exits, unless the application handles the signal.
    - `settle`: longest time for handlers that are running when sessions go to another worker, in seconds.
    """
    if not isinstance(sio, socketio.AsyncServer):
        raise TypeError("attach(sio, url): `sio` must be a socketio.AsyncServer; servers with threads aren't supported")
    if type(sio.manager) is not AsyncManager:
        raise TypeError("create the server without `client_manager`: Stentor has the rooms of all workers")
    if on_crash not in (None, *_ON_CRASH):
        raise ValueError(f"on_crash is one of {', '.join(_ON_CRASH)}, not {on_crash!r}")
    link = Link(sio, url, token=token, app=app, name=name, on_crash=on_crash, signals=signals, settle=settle)
    _bind(sio, link)
    return link


def _bind(sio: socketio.AsyncServer, link: Link) -> None:
    """Replaces the parts of a server that concern its connections."""
    eio = sio.eio
    sio.manager = link.manager
    sio.manager.set_server(sio)
    handle_connect, handle_event, save_session = sio._handle_connect, sio._handle_event_internal, sio.save_session

    async def refuse(*request: Any) -> Any:
        environ = eio._async["translate_request"](*request)
        if inspect.isawaitable(environ):
            environ = await environ
        response = {"status": "404 NOT FOUND", "headers": [("Content-Type", "text/plain")], "response": b"Clients connect to Stentor, not to this server."}
        return await eio._make_response(response, environ)

    async def send_packet(eio_sid: str, sent: packet.Packet) -> None:
        session: Session | None = eio.sockets.get(eio_sid)
        if session is None:
            return
        namespace = sent.namespace or "/"
        kept = session.kept.get(namespace)
        if kept and "recovered" in kept and sent.packet_type in (packet.CONNECT, packet.CONNECT_ERROR):
            # The client is connected already.
            if sent.packet_type == packet.CONNECT:
                return link.manager.accept(session, namespace)
            sent = sio.packet_class(packet.DISCONNECT, namespace=namespace)
            link.manager.write(session, "DEL", namespace)
        encoded: Messages | str | bytes = sent.encode()
        session.send_messages(encoded if isinstance(encoded, list) else [encoded])
        if sent.packet_type == packet.CONNECT:
            link.manager.accept(session, namespace)

    async def connect(eio_sid: str, namespace: str, auth: Any) -> None:
        eio.sockets[eio_sid].auth = auth
        await handle_connect(eio_sid, namespace, auth)

    async def event(server: Any, sid: str, eio_sid: str, *rest: Any) -> None:
        session: Session | None = eio.sockets.get(eio_sid)
        task = asyncio.current_task()
        if session and task:
            session.tasks.add(task)
            task.add_done_callback(session.tasks.discard)
        await handle_event(server, sid, eio_sid, *rest)

    async def save(sid: str, session: Any, namespace: str | None = None) -> None:
        await save_session(sid, session, namespace=namespace)
        link.manager.save(sid, namespace or "/")

    sio._send_packet, sio._handle_connect, sio._handle_event_internal, sio.save_session = send_packet, connect, event, save
    sio.shutdown = link.handover
    eio.handle_request = refuse
