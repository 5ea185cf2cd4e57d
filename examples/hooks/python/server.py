"""A backend for Stentor's hooks: it says who clients are, and what their events do. docs/hooks.md

pip install stentor-backend      # until its first release: pip install ../../../clients/backend/python
HOOK_SECRET=… python3 server.py [PORT]
"""
import os
import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server

from stentor_backend import Hooks

# A real backend looks sessions up.
USERS = {"ada-token": "42", "bob-token": "43"}
hooks = Hooks(os.environ.get("HOOK_SECRET") or sys.exit("HOOK_SECRET is missing: it is the secret of [[hooks]] in stentor.toml"))


@hooks.connect
def connect(question, answer):
    user = USERS.get(question["client"].get("token"))
    if user is None:
        answer.deny("token_invalid", "log in first")
    else:
        answer.allow(user=user)


@hooks.event("join")
def join(question, answer, room):
    user = question["user"]
    if user is None or room != f"user:{user['id']}":
        return answer.deny("not_allowed", f"{room} isn't yours")
    return answer.join(room).ack({"joined": room}).emit("joined", user["id"], rooms=[room])


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


# A real backend has a server for production, such as Gunicorn with hooks.wsgi or Uvicorn with hooks.asgi.
with make_server("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000, hooks.wsgi, Server) as server:
    print("listening on", server.server_port, flush=True)
    server.serve_forever()
