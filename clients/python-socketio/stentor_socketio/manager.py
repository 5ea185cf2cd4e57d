"""The client manager: Stentor keeps the rooms of all workers' sockets, and each worker those of its own sockets as a mirror.

Every change is written as an entry at once, so changes and broadcasts take effect in the order of the application's calls.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from socketio import packet
from socketio.async_manager import AsyncManager

from .entries import DISCONNECT, END, JOIN, LEAVE, WORKER
from .session import Session

if TYPE_CHECKING:
    from .link import Link

#: Acknowledgement ids of a process begin after a multiple of 2^20 below 2^30: those of a former process must not match, nor Stentor's own, which are greater.
_ACK_IDS, _ACK_RANGES = 1 << 20, 1 << 10
#: Longest time for acknowledgements of other workers' clients, in seconds.
_ANSWER_S = 60
#: The index of the namespace `/`, in which workers ask each other: every worker has it.
_MAIN = 0
#: Maximum length of the name of a namespace, and of those of all namespaces, in bytes. Stentor ends a link that exceeds them.
_NAME_BYTES_MAX, _NAMES_BYTES_MAX = 256, 4 << 20

Messages = list[str | bytes]


class TooManyError(ValueError):
    """The link has no room for the name of another namespace."""


class Manager(AsyncManager):  # type: ignore[misc]
    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._first_ack = random.randrange(_ACK_RANGES) * _ACK_IDS + 1
        #: Indexes of the declared namespaces. Clients choose the names if the server has handlers for `*`.
        self._indexes: dict[str, int] = {}
        #: Namespaces by index, also those that are gone, until Stentor has confirmed that no entry with the index follows.
        self._names: dict[int, str] = {}
        #: Indexes that Stentor has freed.
        self._vacant: list[int] = []
        self._names_bytes = 0
        #: Callbacks for other workers' clients, by the number of the question.
        self._questions: dict[int, Callable[..., Any]] = {}
        self._numbers = itertools.count(1)

    # Namespaces.

    def index(self, namespace: str) -> int:
        """The index of a namespace on this link, which is declared when it is used first. Raises `TooManyError`, or `ValueError` for a long name."""
        index = self._indexes.get(namespace)
        if index is None:
            if not self._indexes and namespace != "/":
                self.index("/")
            index = self._vacant[-1] if self._vacant else len(self._names)
            name_bytes = len(namespace.encode(errors="replace"))
            if name_bytes > _NAME_BYTES_MAX:
                raise ValueError(f"the name of a namespace is longer than {_NAME_BYTES_MAX} bytes: {namespace[:40]!r}")
            names_bytes = self._names_bytes + name_bytes
            if index == END or names_bytes > _NAMES_BYTES_MAX:
                raise TooManyError(f"there are too many namespaces to add {namespace[:40]!r}: the maximum is {END}, with names of {_NAMES_BYTES_MAX} bytes")
            self._link.channel.write(WORKER["NSP"], index, namespace)
            del self._vacant[-1:]
            self._indexes[namespace], self._names[index], self._names_bytes = index, namespace, names_bytes
        return index

    def _late(self, namespace: str) -> int | None:
        """The index for an entry of the application. Without a socket here, the namespace has it for this turn. `None` if there is no room for its name."""
        try:
            index = self.index(namespace)
        except TooManyError as error:
            self._link.warn_once("namespace", f"an event, or a change of sockets, was dropped: {error}")
            return None
        if namespace not in self.rooms:
            asyncio.get_running_loop().call_soon(self._forget, namespace)
        return index

    def _forget(self, namespace: str) -> None:
        """A namespace without handlers of its own has no socket here: its name doesn't count any more."""
        if namespace in self.rooms or namespace not in self._indexes or namespace in self._static():
            return
        self._names_bytes -= len(namespace.encode(errors="replace"))
        self._link.channel.write(WORKER["GONE"], self._indexes.pop(namespace))

    def vacated(self, index: int) -> None:
        """Stentor writes no entry with this index any more."""
        if self._names.pop(index, None) is not None:
            self._vacant.append(index)

    def _static(self) -> set[str]:
        """The namespaces that the server has without any client."""
        sio = self._link.sio
        listed = sio.namespaces if isinstance(sio.namespaces, (list, tuple, set)) else ()
        return {"/", *sio.handlers, *sio.namespace_handlers, *listed} - {"*"}

    def declare(self) -> None:
        """Declares the namespaces with handlers: other workers' changes to their sockets are reported from now on."""
        for namespace in sorted(self._static()):
            self.index(namespace)

    def reset(self) -> None:
        """A new link has no namespaces."""
        self._indexes.clear()
        self._names.clear()
        self._vacant.clear()
        self._names_bytes = 0
        self.declare()

    def named(self, index: int) -> str:
        """The namespace with this index."""
        return self._names[index]

    # Membership.

    def session(self, sid: str, namespace: str) -> Session | None:
        """The session of a socket of this worker."""
        found: Session | None = self.server.eio.sockets.get(self.rooms.get(namespace, {}).get(None, {}).get(sid))
        return found

    def write(self, session: Session, entry: str, namespace: str, *fields: Any) -> None:
        """Writes an entry about a socket, unless its session is gone. Without room for the namespace, Stentor can't be told: the session is closed."""
        if not session.is_alive:
            return
        try:
            index = self.index(namespace)
        except TooManyError as error:
            return self.refuse(session, error)
        self._link.channel.write(WORKER[entry], session.handle, index, *fields)

    def refuse(self, session: Session, error: TooManyError) -> None:
        """Closes a session whose sockets need a namespace for which there is no room."""
        self._link.warn_once("namespace", f"a client's session is closed: {error}")
        session.refuse()

    async def pre_connect(self, eio_sid: str, namespace: str) -> str | None:
        session: Session = self.server.eio.sockets[eio_sid]
        if self.sid_from_eio_sid(eio_sid, namespace):
            return None
        try:
            self.index(namespace)
        except ValueError as error:
            self._link.warn_once("namespace", f"a client was refused: {error}")
            return None
        kept = session.kept.get(namespace)
        sid: str = kept["id"] if kept else self.server.eio.generate_id()
        for room in dict.fromkeys((None, sid, *(kept["rooms"] if kept else ()))):
            self.basic_enter_room(sid, namespace, room, eio_sid=eio_sid)
        # Stentor has the socket and its rooms if it is kept.
        if not kept:
            self.write(session, "ADD", namespace, sid, "", [sid], session.state())
        return sid

    async def connect(self, sid: str, namespace: str) -> str | None:
        # Until version 5.17, python-socketio has no other call, and gives Engine.IO's id.
        return await self.pre_connect(sid, namespace) if sid in self.server.eio.sockets else sid

    def is_pre_connected(self, sid: str, namespace: str) -> bool:
        """`True` until the client has been told that it is connected."""
        session = self.session(sid, namespace)
        return session is not None and namespace not in session.accepted

    def is_connected(self, sid: str, namespace: str) -> bool:
        return bool(super().is_connected(sid, namespace)) and not self.is_pre_connected(sid, namespace)

    def accept(self, session: Session, namespace: str) -> None:
        """The client is told that it is connected. From here on, Stentor has data of the socket: see `Session.resume`."""
        session.accepted.add(namespace)
        self.write(session, "STATE", namespace, session.data(namespace) or '{"session":{}}')

    def save(self, sid: str, namespace: str) -> None:
        """The application has saved the session of a socket."""
        session = self.session(sid, namespace)
        text = session.data(namespace) if session and self.is_connected(sid, namespace) else None
        if session and text is not None:
            self.write(session, "STATE", namespace, text)

    async def disconnect(self, sid: str, namespace: str, **kwargs: Any) -> None:
        session = self.session(sid, namespace)
        await super().disconnect(sid, namespace)
        if session:
            session.accepted.discard(namespace)
            self.write(session, "DEL", namespace)
        self._forget(namespace)

    async def can_disconnect(self, sid: str, namespace: str) -> bool:
        if self.session(sid, namespace) is None:
            self._select(DISCONNECT, namespace, [sid], [])
        return bool(self.is_connected(sid, namespace))

    async def enter_room(self, sid: str, namespace: str, room: Any, eio_sid: str | None = None) -> None:
        session = self.session(sid, namespace)
        if session is None:
            return self._select(JOIN, namespace, [sid], [str(room)])
        await super().enter_room(sid, namespace, str(room))
        self.write(session, "JOIN", namespace, [str(room)])

    async def leave_room(self, sid: str, namespace: str, room: Any) -> None:
        session = self.session(sid, namespace)
        if session is None:
            return self._select(LEAVE, namespace, [sid], [str(room)])
        await super().leave_room(sid, namespace, str(room))
        self.write(session, "LEAVE", namespace, str(room))

    async def close_room(self, room: Any, namespace: str) -> None:
        await super().close_room(str(room), namespace)
        self._select(LEAVE, namespace, [str(room)], [str(room)])

    def _select(self, change: int, namespace: str, rooms: list[str], targets: list[str]) -> None:
        """Changes the sockets of all workers that are in these rooms. A socket's id is a room of its own."""
        index = self._late(namespace)
        if index is not None:
            self._link.channel.write(WORKER["SELECT"], index, change, 0, rooms, [], targets)

    async def members(self, session: Session, namespace: str, change: int, rooms: list[str]) -> None:
        """Another worker has changed the rooms of a session's socket."""
        sid = self.sid_from_eio_sid(session.sid, namespace)
        for room in rooms if sid else ():
            if change == JOIN and room not in self.rooms[namespace][None]:
                self.basic_enter_room(sid, namespace, room)
            elif change == LEAVE:
                self.basic_leave_room(sid, namespace, room)

    async def kick(self, session: Session, namespace: str, closes: bool) -> None:
        """Another worker disconnects a session's socket."""
        sid = self.sid_from_eio_sid(session.sid, namespace)
        if sid:
            await self.server.disconnect(sid, namespace, ignore_queue=True)
        if closes:
            await session.close()

    def lost(self, session: Session, namespace: str) -> None:
        """Tells a client of its socket that another worker has disconnected while no worker had it."""
        session.send_messages([self.server.packet_class(packet.DISCONNECT, namespace=namespace).encode()])
        self.write(session, "DEL", namespace)
        self._forget(namespace)

    # Events.

    async def emit(
        self, event: str, data: Any, namespace: str, room: Any = None, skip_sid: Any = None, callback: Any = None, to: Any = None, **kwargs: Any
    ) -> None:
        room = to or room
        args = [event, *(data if isinstance(data, tuple) else () if data is None else (data,))]
        rooms = [] if room is None else [room] if isinstance(room, str) or not hasattr(room, "__len__") else list(room)
        rooms = list(map(str, rooms))
        skipped = list(map(str, skip_sid)) if isinstance(skip_sid, (list, tuple, set)) else [] if skip_sid is None else [str(skip_sid)]
        if room is not None and not rooms:
            return
        session = self.session(rooms[0], namespace) if len(rooms) == 1 else None
        if callback:
            self._emit_here(args, namespace, rooms, skipped, callback)
            if session is None and self._link.peers > 1:
                body = {"kind": "broadcast", "nsp": namespace, "id": self._ask(callback)}
                self._relay(0, {**body, "opts": {"rooms": rooms, "except": skipped, "flags": {}}}, args)
        elif session and not skipped:
            session.send_messages(self._pack(args, namespace))
        elif (index := self._late(namespace)) is not None:
            self._link.channel.write(WORKER["BROADCAST"], index, 0, rooms, skipped, None, self._pack(args, namespace))

    def _emit_here(self, args: list[Any], namespace: str, rooms: Sequence[str], skipped: Sequence[str], callback: Callable[..., Any]) -> int:
        """Emits to sockets of this worker, each with an id of its own. Returns their number."""
        found = dict(self.get_participants(namespace, list(rooms) or None))
        recipients = [sid for sid in found if sid not in skipped]
        for sid in recipients:
            self.server.eio.sockets[found[sid]].send_messages(self._pack(args, namespace, self._generate_ack_id(sid, callback)))
        return len(recipients)

    def _generate_ack_id(self, sid: str, callback: Callable[..., Any]) -> int:
        self.callbacks.setdefault(sid, {0: itertools.count(self._first_ack)})
        number: int = super()._generate_ack_id(sid, callback)
        return number

    def _pack(self, args: list[Any], namespace: str, id: int | None = None) -> Messages:
        encoded = self.server.packet_class(packet.EVENT, namespace=namespace, data=args, id=id).encode()
        return encoded if isinstance(encoded, list) else [encoded]

    # Questions between workers: callbacks of other workers' clients. Arguments travel as a packet, so binary works.

    def _ask(self, callback: Callable[..., Any]) -> int:
        number = next(self._numbers)
        self._questions[number] = callback
        asyncio.get_running_loop().call_later(_ANSWER_S, self._questions.pop, number, None)
        return number

    def _relay(self, link: int, body: dict[str, Any], args: list[Any] | None = None) -> None:
        """Sends a question to all other workers (`link` is 0), or an answer."""
        messages = [] if args is None else self._pack(["", *args], "/")
        self._link.channel.write(WORKER["RELAY"], _MAIN, link, body, messages)

    async def relayed(self, link: int, body: dict[str, Any], messages: Messages) -> None:
        args: list[Any] = []
        if messages:
            unpacked = self.server.packet_class(encoded_packet=messages[0])
            for attachment in messages[1:]:
                unpacked.add_attachment(attachment)
            args = unpacked.data[1:]
        number = int(body.get("id", 0))
        if body.get("kind") == "broadcast":
            count = self._emit_here(args, body["nsp"], body["opts"]["rooms"], body["opts"]["except"], partial(self._answer, link, number))
            self._relay(link, {"id": number, "kind": "count", "count": count})
        elif body.get("kind") == "ack" and number in self._questions:
            answered = self._questions[number](*args)
            if inspect.isawaitable(answered):
                await answered

    def _answer(self, link: int, number: int, *args: Any) -> None:
        self._relay(link, {"id": number, "kind": "ack"}, list(args))
