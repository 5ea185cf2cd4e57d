"""The entries of the application link: types, flags, the fields of each type in their order, and their bytes. The specification is `crates/link`."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

#: Version of the protocol.
VERSION = 1
#: Length of a frame's header in bytes: its number and the acknowledgement.
HEADER_BYTES = 8
#: In RELEASED, instead of a namespace: the end of a session's sockets.
END = 0xFFFF
#: Flag of BROADCAST: it has an offset.
OFFSET = 16
#: Changes of SELECT and MEMBERS.
JOIN, LEAVE, DISCONNECT = 0, 1, 2


class FrameError(ValueError):
    """A frame breaks the protocol."""


class Entry(NamedTuple):
    """A type of entries. `fields` are names with kinds: the keys of `_WRITERS` and `_READERS`."""

    type: int
    name: str
    fields: tuple[tuple[str, str], ...]

    def pack(self, *values: Any) -> bytes:
        """The bytes of an entry. Raises `ValueError` if a field is out of bounds."""
        parts = [bytes((self.type,))]
        try:
            parts += [_WRITERS[kind](value) for (_, kind), value in zip(self.fields, values, strict=True)]
        except struct.error as error:
            raise ValueError(f"a field of {self.name} is out of bounds: {error}") from None
        return b"".join(parts)


def dumps(value: Any) -> str:
    """JSON without spaces. Raises `ValueError` for NaN and infinities, which Stentor doesn't accept."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


_U8, _U16, _U32 = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I")


def _name(value: str) -> bytes:
    data = value.encode(errors="replace")
    if len(data) > 0xFFFF:
        raise ValueError(f"a name of {len(data)} bytes; the maximum is 65,535: {value[:40]}…")
    return _U16.pack(len(data)) + data


def _text(value: str) -> bytes:
    data = value.encode(errors="replace")
    return _U32.pack(len(data)) + data


def _message(value: str | bytes | bytearray) -> bytes:
    data = value.encode(errors="replace") if isinstance(value, str) else bytes(value)
    return _U32.pack(len(data) << 1 | (not isinstance(value, str))) + data


def _list(count: struct.Struct, item: Callable[[Any], bytes]) -> Callable[[Sequence[Any]], bytes]:
    return lambda values: count.pack(len(values)) + b"".join(map(item, values))


_WRITERS: dict[str, Callable[[Any], bytes]] = {
    "u8": _U8.pack,
    "u16": _U16.pack,
    "u32": _U32.pack,
    "bool": _U8.pack,
    "name": _name,
    "text": _text,
    "json": lambda value: _text(dumps(value)),
    # Written if the flag OFFSET is set.
    "offset": lambda value: b"" if value is None else _name(value),
    "names": _list(_U16, _name),
    "messages": _list(_U16, _message),
    "handles": _list(_U32, _U32.pack),
}


class Reader:
    """Reads a received frame. Everything is checked: a frame that is cut, or has an unknown type, raises `FrameError`."""

    def __init__(self, frame: bytes, types: dict[int, Entry]) -> None:
        self._frame = frame
        self._offset = 0
        self._entry = "the header"
        self._types = types
        self.number = self.u32()
        self.ack = self.u32()

    def __iter__(self) -> Iterator[tuple[Entry, dict[str, Any]]]:
        """The entries with their fields."""
        while self._offset < len(self._frame):
            number = self.u8()
            entry = self._types.get(number)
            if entry is None:
                raise FrameError(f"the frame has an entry of the unknown type {number}")
            self._entry = entry.name
            fields: dict[str, Any] = {}
            for name, kind in entry.fields:
                fields[name] = _READERS[kind](self) if kind != "offset" or fields["flags"] & OFFSET else None
            yield entry, fields

    def u8(self) -> int:
        return self._take(1)[0]

    def u32(self) -> int:
        return int.from_bytes(self._take(4), "little")

    def _take(self, length: int) -> bytes:
        start = self._offset
        self._offset = start + length
        if self._offset > len(self._frame):
            raise FrameError(f"the frame ends within {self._entry}")
        return self._frame[start : self._offset]

    def text(self, length: int) -> str:
        return self._take(length).decode(errors="replace")

    def json(self) -> Any:
        try:
            return json.loads(self.text(self.u32()))
        except (ValueError, RecursionError):
            raise FrameError(f"{self._entry} is malformed: a text isn't JSON") from None

    def message(self) -> str | bytes:
        word = self.u32()
        return self._take(word >> 1) if word & 1 else self.text(word >> 1)


_READERS: dict[str, Callable[[Reader], Any]] = {
    "u8": Reader.u8,
    "u16": lambda reader: int.from_bytes(reader._take(2), "little"),
    "u32": Reader.u32,
    "bool": lambda reader: reader.u8() != 0,
    "name": lambda reader: reader.text(_READERS["u16"](reader)),
    # Empty if it was left out.
    "text": lambda reader: reader.text(reader.u32()),
    "json": Reader.json,
    "offset": lambda reader: _READERS["name"](reader),
    "names": lambda reader: [_READERS["name"](reader) for _ in range(_READERS["u16"](reader))],
    "messages": lambda reader: [reader.message() for _ in range(_READERS["u16"](reader))],
    "handles": lambda reader: [reader.u32() for _ in range(reader.u32())],
}

def _entries(*rows: tuple[int, str, str]) -> dict[str, Entry]:
    """Entries by name. A row has the type, the name, and the fields as `NAME:KIND`."""
    found = {}
    for number, name, fields in rows:
        pairs = (field.partition(":") for field in fields.split())
        found[name] = Entry(number, name, tuple((field, kind) for field, _, kind in pairs))
    return found


#: Entries that a worker writes, by name.
WORKER = _entries(
    (1, "HELLO", "hello:json"),
    (2, "ACCEPT", "handle:u32 headers:json"),
    (3, "REFUSE", "handle:u32 response:json"),
    (4, "SEND", "handle:u32 flags:u8 messages:messages"),
    (5, "CLOSE", "handle:u32 discard:bool"),
    (6, "ADD", "handle:u32 namespace:u16 id:name pid:name rooms:names state:json"),
    (7, "DEL", "handle:u32 namespace:u16"),
    (8, "JOIN", "handle:u32 namespace:u16 rooms:names"),
    (9, "LEAVE", "handle:u32 namespace:u16 room:name"),
    (10, "BROADCAST", "namespace:u16 flags:u8 rooms:names except:names offset:offset messages:messages"),
    (11, "SELECT", "namespace:u16 change:u8 flags:u8 rooms:names except:names targets:names"),
    (12, "RELAY", "namespace:u16 link:u32 body:json messages:messages"),
    (13, "STATE", "handle:u32 namespace:u16 data:text"),
    (14, "PERSIST", "namespace:u16 id:name pid:name rooms:names data:text"),
    (15, "RESTORE", "request:u32 handle:u32 namespace:u16 pid:name offset:name"),
    (16, "WATCH", "handle:u32 isWatched:bool"),
    (17, "BYE", "bye:json"),
    (18, "NSP", "namespace:u16 name:name"),
    (19, "CONFIG", "config:json"),
    (20, "RELEASED", "handle:u32 namespace:u16 data:text"),
    (21, "NOP", ""),
    (22, "KEPT", "handle:u32"),
    (23, "GONE", "namespace:u16"),
)

#: Entries that Stentor writes, by name.
SERVER = _entries(
    (21, "NOP", ""),
    (64, "WELCOME", "welcome:json"),
    (65, "OPEN", "handle:u32 ask:bool handshake:json"),
    (66, "MESSAGE", "handle:u32 messages:messages"),
    (67, "UPGRADE", "handle:u32 transport:name"),
    (68, "CLOSED", "handle:u32 reason:name description:text"),
    (69, "RESUME", "handle:u32 session:json"),
    (70, "RECEIPT", "handle:u32"),
    (71, "RELAYED", "namespace:u16 link:u32 body:json messages:messages"),
    (72, "MEMBERS", "namespace:u16 change:u8 handles:handles rooms:names"),
    (73, "KICK", "namespace:u16 closes:bool handles:handles"),
    (74, "PEERS", "count:u16"),
    (75, "RESTORED", "request:u32 socket:json"),
    (76, "PACKET", "handle:u32 kind:name"),
    (78, "ERROR", "error:json"),
    (79, "PRESSURE", "handle:u32 isOn:bool"),
    (80, "DRAINED", ""),
    (81, "RELEASE", "handle:u32"),
    (82, "CONN_ERROR", "error:json"),
    (83, "VACANT", "namespace:u16"),
)


def by_type(entries: dict[str, Entry]) -> dict[int, Entry]:
    """Entries by type, for `Reader`."""
    return {entry.type: entry for entry in entries.values()}
