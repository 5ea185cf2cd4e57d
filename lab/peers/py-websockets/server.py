"""PyPI `websockets` on uvloop as a peer: echo, chat (each message to everybody, sender included) and fanout (one document of
B bytes, H times a second, to everybody), by the documented interface: what goes to everybody goes through `broadcast`."""

import argparse
import asyncio
import sys
import time
from contextlib import suppress

import uvloop
from websockets.asyncio.server import broadcast, serve
from websockets.exceptions import ConnectionClosed

BYTES_MAX = 16 * 1024 * 1024

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="echo", choices=["echo", "chat", "fanout"])
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--bytes", type=int, default=1000)
parser.add_argument("--hz", type=int, default=20)
options = parser.parse_args()

clients = set()


# A client that breaks off is no concern of ours.
async def echo(client):
    with suppress(ConnectionClosed):
        async for message in client:
            await client.send(message)


async def chat(client):
    clients.add(client)
    try:
        with suppress(ConnectionClosed):
            async for message in client:
                broadcast(clients, message)
    finally:
        clients.discard(client)


async def fanout():
    size, hz = max(36, options.bytes), max(1, options.hz)
    started = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    sent = 0
    while True:
        due = started + sent * 1_000_000_000 // hz
        late = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - due
        await asyncio.sleep(max(0, -late / 1e9))
        broadcast(clients, b"%016d%020d" % (sent, due) + b"x" * (size - 36), text=True)
        sent += 1


async def main():
    server = await serve(
        echo if options.mode == "echo" else chat,
        "127.0.0.1",
        options.port,
        backlog=4096,
        compression=None,
        max_size=BYTES_MAX,
        open_timeout=None,
        ping_interval=None,
    )
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    if options.mode == "fanout":
        await fanout()
    await server.serve_forever()


try:
    uvloop.run(main())
except OSError as error:
    sys.exit(f"py-websockets: {error}")
