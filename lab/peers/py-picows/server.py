"""PyPI `picows` on uvloop as a peer: echo, chat (each message to everybody, sender included) and fanout (one document of B
bytes, H times a second, to everybody), by the documented interface."""

import argparse
import asyncio
import sys
import time

import uvloop
from picows import WSCloseCode, WSListener, WSMsgType, ws_create_server

BYTES_MAX = 16 * 1024 * 1024
READ_BYTES = 4096

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="echo", choices=["echo", "chat", "fanout"])
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--bytes", type=int, default=1000)
parser.add_argument("--hz", type=int, default=20)
options = parser.parse_args()

clients = set()


class Echo(WSListener):
    def on_ws_frame(self, transport, frame):
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()
        elif frame.msg_type != WSMsgType.PONG:
            transport.send(frame.msg_type, frame.get_payload_as_memoryview(), frame.fin)


class Chat(WSListener):
    """Of whole messages: the fragments of several senders would mix."""

    def on_ws_connected(self, transport):
        clients.add(transport)

    def on_ws_disconnected(self, transport):
        clients.discard(transport)

    def on_ws_frame(self, transport, frame):
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()
        elif frame.msg_type in (WSMsgType.TEXT, WSMsgType.BINARY) and options.mode == "chat":
            if frame.fin:
                to_all(frame.msg_type, frame.get_payload_as_bytes())
            else:
                transport.disconnect()


def to_all(kind, message):
    # Sending may end a connection, which leaves the set.
    for client in tuple(clients):
        client.send(kind, message)


async def fanout():
    size, hz = max(36, options.bytes), max(1, options.hz)
    started = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    sent = 0
    while True:
        due = started + sent * 1_000_000_000 // hz
        late = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - due
        await asyncio.sleep(max(0, -late / 1e9))
        to_all(WSMsgType.TEXT, b"%016d%020d" % (sent, due) + b"x" * (size - 36))
        sent += 1


async def main():
    listener = Echo if options.mode == "echo" else Chat
    server = await ws_create_server(
        lambda request: listener(),
        "127.0.0.1",
        options.port,
        backlog=4096,
        max_frame_size=BYTES_MAX,
        read_buffer_init_size=READ_BYTES,
        websocket_handshake_timeout=None,
    )
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    if options.mode == "fanout":
        await fanout()
    await server.serve_forever()


try:
    uvloop.run(main())
except OSError as error:
    sys.exit(f"py-picows: {error}")
