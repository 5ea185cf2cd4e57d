"""A small HTTP API with live documents. It needs only Python's standard library.

    python3 examples/live/api.py [PORT]

`/match/8` is a match that changes about once per second. Matches 1 to 99 exist. `/` is a page that shows match 8.
"""

import json
import random
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
PAGE = Path(__file__).with_name("page.html")
TOKEN = "let-me-in"


def match(number, second):
    """Returns the match at this second. All clients get the same one."""
    dice = random.Random(number)
    minute = (second // 10) % 90
    goals = sorted(dice.randrange(90) for _ in range(4))
    players = [
        {"id": n, "name": f"Player {n}", "team": n % 2, "touches": (second + n * 7) // (3 + n) % 100}
        for n in range(1, 23)
    ]
    return {
        "match": number,
        "minute": minute,
        "score": [sum(goal <= minute for goal in goals[side::2]) for side in (0, 1)],
        "players": players,
    }


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.split("?")[0]
        name, _, number = path[1:].partition("/")
        if path == "/":
            self.answer(200, PAGE.read_bytes(), "text/html; charset=utf-8")
        elif name != "match" or not number.isdigit() or not 0 < int(number) < 100:
            self.answer(404, b'{"error":"no such match"}')
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, b'{"error":"token required"}')
        else:
            second = int(time.time())
            etag = f'"{second}"'
            if self.headers.get("If-None-Match") == etag:
                self.answer(304, b"", etag=etag)
            else:
                self.answer(200, json.dumps(match(int(number), second)).encode(), etag=etag)

    def answer(self, status, body, content_type="application/json", etag=None):
        self.send_response(status)
        if etag:
            self.send_header("ETag", etag)
        if status != 304:
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Api)
    print(f"http://127.0.0.1:{PORT}/match/8", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
