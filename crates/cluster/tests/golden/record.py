"""Records what python-socketio publishes, with what it means: `pip install -r requirements.txt && python record.py`.

See README.md.
"""
import base64
import json
import pathlib
import socketio
from socketio.pubsub_manager import PubSubManager

vectors = []


class Recorder(PubSubManager):
    """A manager that publishes nowhere: `RedisManager` publishes `json.dumps(data)`, too."""

    def _publish(self, data):
        self.published.append(json.dumps(data))


class Server(socketio.Server):
    def start_background_task(self, *args, **kwargs):
        pass


manager = Recorder()
manager.host_id = "0123456789abcdef0123456789abcdef"
manager.published = []
server = Server(client_manager=manager)
manager.initialize()


def content(values):
    attachments = []

    def replace(value):
        if isinstance(value, bytes):
            attachments.append(base64.b64encode(value).decode())
            return {"_placeholder": True, "num": len(attachments) - 1}
        if isinstance(value, (list, tuple)):
            return [replace(part) for part in value]
        if isinstance(value, dict):
            return {key: replace(part) for key, part in value.items()}
        return value

    text = json.dumps(replace(values), separators=(",", ":"))[1:-1]
    return {"arguments": text, "attachments": attachments}


def record(name, meaning, action):
    manager.published.clear()
    action()
    (message,) = manager.published
    payload = base64.b64encode(message.encode()).decode()
    host = {"host": manager.host_id} if "host" not in meaning else {}
    vectors.append({"name": name, "channel": manager.channel, "payload": payload, "meaning": {**meaning, **host}})


def emit(name, data, values, namespace="/", rooms=(), skip=(), callback=None, **kwargs):
    meaning = {"method": "emit", "namespace": namespace, "rooms": list(rooms), "skip": list(skip), "event": "event",
               "callback": callback, **content(values)}
    record(name, meaning, lambda: manager.emit("event", data, namespace=namespace, **kwargs))


emit("no data", None, [])
emit("text", "Grüße ♥ 😀 \0\x1f\"\\", ["Grüße ♥ 😀 \0\x1f\"\\"])
emit("several arguments", (1, "two", None, [3.5]), [1, "two", None, [3.5]])
emit("a list is one argument", [1, 2], [[1, 2]])
emit("an object", {"a": {"b": [True, None, 2**53, -1.5]}}, [{"a": {"b": [True, None, 2**53, -1.5]}}])
emit("binary", b"\x00\xff", [b"\x00\xff"])
emit("binary within", ({"a": b"1", "b": [b"2", 3]}, b""), [{"a": b"1", "b": [b"2", 3]}, b""])
emit("namespace", 1, [1], namespace="/chat")
emit("room", 1, [1], rooms=["lobby"], room="lobby")
emit("rooms", 1, [1], rooms=["a", "b"], room=["a", "b"])
emit("skip one", 1, [1], skip=["sid1"], skip_sid="sid1")
emit("skip several", 1, [1], rooms=["a"], skip=["sid1", "sid2"], room="a", skip_sid=["sid1", "sid2"])
record("callback wanted", {"method": "emit", "namespace": "/", "rooms": ["sid1"], "skip": [], "event": "event",
                           "callback": ["sid1", "/", 1], **content([1])},
       lambda: manager.emit("event", 1, room="sid1", callback=lambda *args: None))
record("callback", {"method": "callback", "host": "other", "session": "sid1", "namespace": "/", "id": 1,
                    "arguments": "1,{\"a\":\"b\"}", "attachments": []},
       lambda: manager._return_callback("other", "sid1", "/", 1, 1, {"a": "b"}))
record("callback without arguments", {"method": "callback", "host": "other", "session": "sid1", "namespace": "/c", "id": 2,
                                      "arguments": "", "attachments": []},
       lambda: manager._return_callback("other", "sid1", "/c", 2))
record("disconnect", {"method": "disconnect", "session": "sid1", "namespace": "/"}, lambda: manager.disconnect("sid1"))
record("can disconnect", {"method": "disconnect", "session": "sid1", "namespace": "/c"},
       lambda: manager.can_disconnect("sid1", "/c"))
record("enter room", {"method": "enter_room", "session": "sid1", "namespace": "/", "room": "r"},
       lambda: manager.enter_room("sid1", "/", "r"))
record("leave room", {"method": "leave_room", "session": "sid1", "namespace": "/", "room": "r"},
       lambda: manager.leave_room("sid1", "/", "r"))
record("close room", {"method": "close_room", "namespace": "/c", "room": "r"}, lambda: manager.close_room("r", "/c"))

path = pathlib.Path(__file__).with_name("python.json")
path.write_text(json.dumps(vectors, indent=1) + "\n")
