"""Stentor's side of an application link, scripted by the test: what it writes and when, and what it expects of the worker."""

import asyncio
import contextlib

from stentor_socketio.entries import HEADER_BYTES, SERVER, WORKER, Reader, by_type
from stentor_socketio.frames import Outgoing
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

# Far more than anything takes, so that a slow machine fails no test.
PATIENCE_S = 60


async def within(awaitable):
    return await asyncio.wait_for(awaitable, PATIENCE_S)


class Server:
    """A server for workers. `connection` gives the next worker's connection, after its HELLO."""

    async def start(self, test):
        self._connections = asyncio.Queue()
        server = await serve(self._accept, "127.0.0.1", 0, subprotocols=["stentor.link.v1"], compression=None, max_size=None)
        test.addAsyncCleanup(server.wait_closed)
        test.addCleanup(server.close)
        self.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return self

    async def _accept(self, socket):
        connection = Connection(socket)
        hello = Reader(await socket.recv(), by_type(WORKER))
        connection.hello = next(iter(hello))[1]["hello"]
        await self._connections.put(connection)
        with contextlib.suppress(ConnectionClosed):
            async for frame in socket:
                connection._receive(frame)
        connection.closed.set()

    async def connection(self):
        return await within(self._connections.get())


class Connection:
    def __init__(self, socket):
        self.socket = socket
        self.closed = asyncio.Event()
        self._entries = asyncio.Queue()
        self._outgoing = Outgoing()
        self._arrived = 0

    def _receive(self, frame):
        reader = Reader(frame, by_type(WORKER))
        self._arrived = reader.number or self._arrived
        if len(frame) == HEADER_BYTES:
            self._entries.put_nowait({"entry": "ack", "ack": reader.ack})
        for entry, fields in reader:
            self._entries.put_nowait({"entry": entry.name, **fields, "number": reader.number, "ack": reader.ack})

    async def first(self, name, body):
        """Sends an entry in a frame without a number."""
        await self.socket.send(bytes(HEADER_BYTES) + SERVER[name].pack(body))

    async def welcome(self, **fields):
        await self.first("WELCOME", {"v": 1, "link": 5, "resumed": False, "received": 0, "servers": 1, "window": 262_144, "options": {}, **fields})
        return self

    async def write(self, *entries):
        """Sends entries, `(name, *fields)`, in one frame, which acknowledges all that has arrived."""
        for name, *fields in entries:
            self._outgoing.write(SERVER[name].pack(*fields))
        for frame in self._outgoing.poll(self._arrived):
            await self.socket.send(frame)

    async def read(self, name):
        """The next entry of this type; others are left out."""
        while True:
            found = await within(self._entries.get())
            if found["entry"] == name:
                return found

    async def next(self):
        """The next entry or acknowledgement of any type."""
        return await within(self._entries.get())

    def cut(self):
        """Cuts the connection."""
        self.socket.transport.abort()


def handshake(sid, **fields):
    """The handshake of a client."""
    return {
        "sid": sid, "url": "/socket.io/?EIO=4&transport=websocket", "query": {"EIO": "4"}, "protocol": 4, "transport": "websocket", "method": "GET",
        "httpVersion": "1.1", "headers": {"host": "a.example", "x-a": "1, 2"}, "address": "192.0.2.1", "port": 1234, "localAddress": "192.0.2.2",
        "localPort": 80, "encrypted": False, **fields,
    }  # fmt: skip
