"""A backend with stentor-backend for the tests: /hooks answers hooks, /asgi by ASGI, /call makes a call, /verify checks a signature."""
import asyncio, json, logging, os, sys
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "clients/backend/python"))
from stentor_backend import Hooks, Stentor, StentorError, verify  # noqa: E402

logging.disable()
hooks = Hooks(os.environ["HOOK_SECRET"])
stentor = Stentor(os.environ["STENTOR_ADMIN"], os.environ.get("STENTOR_TOKEN"), int(os.environ["STENTOR_TIMEOUT_MS"]) / 1000)


@hooks.connect
def connect(question, answer):
    token = question["client"].get("token")
    if token == "ada-token":
        answer.allow(user="42", info={"name": "Ada"})
    elif token == "greeted":
        answer.allow().emit("welcome", rooms=[question["connection"]["session"]])
    elif token != "undecided":
        answer.deny("token_invalid", "log in first")


@hooks.subscribe
def subscribe(question, answer):
    if question["room"] != "secret" or "staff" in question["connection"].get("rooms", []):
        answer.allow(ttl=60)


@hooks.event("join")
async def join(question, answer, room):
    answer.join(room).ack({"joined": room}).emit("joined", question["user"]["id"], rooms=[room], except_sender=True).emit("welcome")


@hooks.event("leave")
def leave(question, answer, *rooms):
    answer.leave(*rooms).disconnect()


@hooks.event("fail")
def fail(question, answer):
    raise ValueError("as the test wants it")


@hooks.event("unencodable")
def unencodable(question, answer):
    answer.ack(float("nan"))


@hooks.notice
def notice(given, node):
    if given["notice"] == "resync":
        raise ValueError("as the test wants it")


def call(method, *args):
    names = {"publishAll": "publish_all"}
    # The fields at the end are keywords in Python.
    keywords = args[-1] if method in ("publish", "push", "disconnect", "sessions", "revoke") and isinstance(args[-1], dict) and len(args) > {"publish": 2, "push": 2, "disconnect": 1, "sessions": 1, "revoke": 0}[method] else None
    try:
        return {"result": getattr(stentor, names.get(method, method))(*(args if keywords is None else args[:-1]), **(keywords or {}))}
    except StentorError as error:
        return {"error": {"status": error.status, "code": error.code, "retry": error.retry, "published": error.published}}


def by_asgi(environ):
    """The request as ASGI servers pass it on, in two parts."""
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    parts = [{"type": "http.request", "body": body[:10], "more_body": True}, {"type": "http.request", "body": body[10:]}]
    sent = []

    async def receive():
        return parts.pop(0)

    async def send(event):
        sent.append(event)

    signature = environ.get("HTTP_STENTOR_SIGNATURE")
    headers = [] if signature is None else [(b"stentor-signature", signature.encode())]
    asyncio.run(hooks.asgi({"type": "http", "headers": headers}, receive, send))
    return sent[0]["status"], sent[1]["body"]


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/hooks":
        return hooks.wsgi(environ, start_response)
    if path == "/asgi":
        status, body = by_asgi(environ)
    else:
        status, given = 200, json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        answer = call(*given) if path == "/call" else {"result": verify(given["header"], given["body"].encode(), given["secret"])}
        body = json.dumps(answer).encode()
    start_response(f"{status} -", [("Content-Type", "application/json")])
    return [body]


class Silent(WSGIRequestHandler):
    def log_message(self, *_):
        pass


server = make_server("127.0.0.1", 0, application, handler_class=Silent)
print("listening on", server.server_port, flush=True)
server.serve_forever()
