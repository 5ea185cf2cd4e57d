"""PyPI `sockjs-tornado` on tornado 6 and asyncio, or on tornado 4.5 and PyPy (`sockjs-tornado-pypy45`), as a peer: echo and chat
(each message to everybody, sender included), by the documented interface."""

import argparse
import os
import signal
import sys

from sockjs.tornado import SockJSConnection, SockJSRouter
from tornado import httpserver, ioloop, netutil, web

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="echo", choices=["echo", "chat"])
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--protocol", default="sockjs")
options = parser.parse_args()


class Echo(SockJSConnection):
    def on_message(self, message):
        self.send(message)


class Chat(SockJSConnection):
    clients = set()

    def on_open(self, request):
        self.clients.add(self)

    def on_message(self, message):
        self.broadcast(self.clients, message)

    def on_close(self):
        self.clients.discard(self)


disabled = [] if options.protocol == "sockjs" else ["websocket"]
router = SockJSRouter(
    Chat if options.mode == "chat" else Echo, "/sockjs", {"jsessionid": False, "disabled_transports": disabled}
)
server = httpserver.HTTPServer(web.Application(router.urls))
try:
    sockets = netutil.bind_sockets(options.port, "127.0.0.1", backlog=4096)
except OSError as error:
    sys.exit(f"sockjs-tornado: {error}")
server.add_sockets(sockets)

# At once, from within a system call as well.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print(f"ready http://127.0.0.1:{sockets[0].getsockname()[1]}", flush=True)
ioloop.IOLoop.current().start()
