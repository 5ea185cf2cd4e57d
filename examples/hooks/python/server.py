"""A backend for Stentor's hooks: it says who clients are, and what their events do. docs/hooks.md

HOOK_SECRET=… python3 server.py [PORT]
"""
import hashlib, hmac, json, os, re, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ["HOOK_SECRET"].encode()
# A real backend looks sessions up.
USERS = {"ada-token": "42", "bob-token": "43"}


def connect(question):
    user = USERS.get(question["client"].get("token"))
    if user is None:
        return {"allow": False, "code": "token_invalid", "message": "log in first"}
    return {"allow": True, "user": user}


def event(question):
    if question["event"] != "join":
        return {"allow": False, "code": "unknown_event"}
    [room], user = question["arguments"], question["user"]
    if user is None or room != f"user:{user['id']}":
        return {"allow": False, "code": "not_allowed", "message": f"{room} isn't yours"}
    joined = {"event": "joined", "arguments": [user["id"]], "rooms": [room]}
    return {"join": [room], "ack": [{"joined": room}], "emit": [joined]}


ANSWERS = {"connect": connect, "event": event}


def answer(question):
    try:
        return {"id": question["id"], **ANSWERS[question["hook"]](question)}
    except Exception:  # one question that can't be answered mustn't fail the others
        return {"id": question["id"], "allow": False, "code": "bad_request"}


def is_signed(header, body):
    match = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", header or "")
    if match is None or abs(time.time() - int(match[1])) > 300:
        return False
    expected = hmac.new(SECRET, match[1].encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, match[2])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept open

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status, response = 401, b""
        if is_signed(self.headers["stentor-signature"], body):
            questions = json.loads(body)["questions"]
            status, response = 200, json.dumps({"answers": [answer(question) for question in questions]}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000), Handler)
print("listening on", server.server_port, flush=True)
server.serve_forever()
