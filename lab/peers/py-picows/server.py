"""PyPI `picows` on uvloop as a peer: echo and chat (each message to everybody, sender included), by the documented
interface."""

import argparse
import sys

import uvloop
from picows import WSCloseCode, WSListener, WSMsgType, ws_create_server

BYTES_MAX = 16 * 1024 * 1024
READ_BYTES = 4096

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="echo", choices=["echo", "chat"])
parser.add_argument("--port", type=int, default=0)
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
        elif frame.msg_type in (WSMsgType.TEXT, WSMsgType.BINARY):
            if frame.fin:
                to_all(frame.msg_type, frame.get_payload_as_bytes())
            else:
                transport.disconnect()


def to_all(kind, message):
    # Sending may end a connection, which leaves the set.
    for client in tuple(clients):
        client.send(kind, message)


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
    await server.serve_forever()


try:
    uvloop.run(main())
except OSError as error:
    sys.exit(f"py-picows: {error}")
