"""Commands and reports as lines of JSON."""
import base64
import json
import sys
import threading

_lock = threading.Lock()


def _encoded(value):
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(value).decode()}
    raise TypeError(type(value))


def _decoded(value):
    return base64.b64decode(value["$bytes"]) if "$bytes" in value else value


def report(type_, **fields):
    line = json.dumps({"type": type_, **fields}, default=_encoded)
    with _lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def command():
    """The next command; None at the end."""
    line = sys.stdin.readline()
    return json.loads(line, object_hook=_decoded) if line else None
