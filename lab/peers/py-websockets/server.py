"""PyPI `websockets` on uvloop as a peer: echo and chat (each message to everybody, sender included), by the documented
interface: what goes to everybody goes through `broadcast`."""

import argparse
import sys
from contextlib import suppress

import uvloop
from websockets.asyncio.server import broadcast, serve
from websockets.exceptions import ConnectionClosed

BYTES_MAX = 16 * 1024 * 1024

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="echo", choices=["echo", "chat"])
parser.add_argument("--port", type=int, default=0)
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
    await server.serve_forever()


try:
    uvloop.run(main())
except OSError as error:
    sys.exit(f"py-websockets: {error}")
