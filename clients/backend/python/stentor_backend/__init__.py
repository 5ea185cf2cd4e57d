"""The admin API and the hooks of Stentor. docs/admin-api.md and docs/hooks.md describe the fields."""
import asyncio
import hashlib
import hmac
import http.client
import inspect
import json
import logging
import re
import time
import urllib.error
import urllib.parse
import urllib.request

__all__ = ["Answer", "Hooks", "Stentor", "StentorError", "verify"]

# Hooks whose signature is older are refused, in seconds.
SIGNATURE_AGE_MAX_S = 300
# A hook's request is at most as long: Stentor sends up to 100 questions.
REQUEST_BYTES_MAX = 32 * 1024 * 1024
FAILURE = "the backend has failed"
log = logging.getLogger(__name__)


class StentorError(Exception):
    """A failed call.

    `status` is that of HTTP, 0 without an answer; `code` is for programs; `retry` says that the same call may succeed later.
    """

    def __init__(self, status, code, message, published=None):
        super().__init__(message)
        self.status, self.code, self.published = status, code, published
        self.retry = status in (0, 408, 503) or code == "in_progress"


class Stentor:
    """The admin API. `target` names sessions: a dict of `rooms`, `sessions`, `namespace`, `except`.

    Calls block; in a coroutine, use `await asyncio.to_thread(stentor.publish, …)`.
    """

    def __init__(self, url="http://127.0.0.1:8001", token=None, timeout_s=10):
        self._url, self._token, self._timeout_s = url.rstrip("/"), token, timeout_s
        # No redirects, and no proxies of the environment: the API is an own server.
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))

    def publish(self, room, data, **fields):
        return self._post("publish", {"room": room, "data": data, **fields})

    def publish_all(self, messages):
        lines = "".join(json.dumps(message) + "\n" for message in messages)
        return self._call("POST", "publish", lines.encode(), "application/x-ndjson")

    def emit(self, target, event, *args):
        return self._post("emit", {**target, "event": event, "args": args}, _wait_s(target.get("ack")))

    def join(self, target, rooms):
        return self._post("join", {**target, "join": rooms})

    def leave(self, target, rooms):
        return self._post("leave", {**target, "leave": rooms})

    def disconnect(self, target, **fields):
        return self._post("disconnect", {**target, **fields})

    def sessions(self, target, **fields):
        return self._post("sessions", {**target, **fields})

    def revoke(self, **fields):
        return self._post("revocations", fields)

    def push(self, key, document, sequence=None, type="application/json"):
        """Pushes a JSON value; with another `type`, a str or bytes."""
        body = json.dumps(document) if type == "application/json" else document
        return self._call("PUT", _feed(key, sequence), body.encode() if isinstance(body, str) else body, type)

    def remove(self, key, sequence=None):
        return self._call("DELETE", _feed(key, sequence))

    def _post(self, operation, fields, wait_s=0):
        return self._call("POST", operation, json.dumps(fields).encode(), "application/json", wait_s)

    def _call(self, method, path, body=None, type=None, wait_s=0):
        headers = {"Content-Type": type} if type else {}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(f"{self._url}/api/v1/{path}", body, headers, method=method)
        try:
            with self._answer(request, self._timeout_s + wait_s) as response:
                status, text = response.status, response.read()
        # An answer that breaks off is an HTTPException.
        except (OSError, http.client.HTTPException) as error:
            raise StentorError(0, "unreachable", f"{self._url} doesn't answer: {getattr(error, 'reason', error)}") from error
        answer = _parsed(text)
        failure = answer.get("error") if isinstance(answer, dict) else None
        if status == 200 and not failure:
            return answer
        failure = failure or (answer if isinstance(answer, dict) else {})
        message = failure.get("message", text[:200].decode(errors="replace"))
        raise StentorError(status, failure.get("code", "unexpected"), message, answer.get("published") if isinstance(answer, dict) else None)

    def _answer(self, request, timeout_s):
        try:
            return self._opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as refusal:
            return refusal


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def _wait_s(ack):
    """The time that Stentor waits for acknowledgements before it answers. It refuses more than `60s`, and what isn't a duration."""
    match = re.fullmatch(r"([0-9]{1,9}) *(m?s)", str(ack.get("timeout"))) if isinstance(ack, dict) else None
    return min(int(match[1]) / (1 if match[2] == "s" else 1000), 60) if match else 0


def _feed(key, sequence):
    return f"feeds/{urllib.parse.quote(key)}" + ("" if sequence is None else f"?sequence={sequence}")


def _parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def verify(signature, body, secrets, now=None):
    """Whether a hook's request is Stentor's: its `Stentor-Signature`, its body as received, and the secret or several of them."""
    match = re.fullmatch(r"t=([0-9]{1,15}),v1=([0-9a-f]{64})", signature or "")
    if match is None or abs((time.time() if now is None else now) - int(match[1])) > SIGNATURE_AGE_MAX_S:
        return False
    signed = match[1].encode() + b"." + body
    secrets = [secrets] if isinstance(secrets, str) else secrets
    return any([hmac.compare_digest(hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest(), match[2]) for secret in secrets if secret])


class Answer:
    """The answer to a question. Without `allow()`, clients may not connect, subscribe or publish; events are accepted without it."""

    def __init__(self):
        self.fields = {}

    def allow(self, **fields):
        for name in ("code", "message", "retry"):
            self.fields.pop(name, None)
        return self._set(**fields, allow=True)

    def deny(self, code="not_allowed", message=None, retry=None):
        given = {"message": message, "retry": retry}
        return self._set(allow=False, code=code, **{name: value for name, value in given.items() if value is not None})

    def join(self, *rooms):
        return self._add("join", rooms)

    def leave(self, *rooms):
        return self._add("leave", rooms)

    def ack(self, *args):
        return self._set(ack=list(args))

    def emit(self, event, *args, **target):
        """`target`: `rooms` (also ids of sessions), `all`, `except_sender`, `volatile`; without rooms, the client itself."""
        return self._add("emit", [{"event": event, "arguments": list(args), **target}])

    def disconnect(self):
        return self._set(disconnect=True)

    def _set(self, **fields):
        self.fields.update(fields)
        return self

    def _add(self, name, more):
        return self._set(**{name: [*self.fields.get(name, []), *more]})


class Hooks:
    """Answers hooks. Decorators name the handlers, which get the question and its answer; those of an event by name also get its arguments.

    Under ASGI they may be coroutines. A handler that raises denies its own question only; if that of notices raises, Stentor sends them again.
    """

    def __init__(self, secret):
        self._secrets = [secret] if isinstance(secret, str) else list(secret or [])
        if not self._secrets or not all(self._secrets):
            raise ValueError("Hooks: the secret is missing: it is the `secret` of [[hooks]] in stentor.toml")
        self._handlers, self._events, self._notice = {}, {}, None

    def connect(self, handler):
        return self._handlers.setdefault("connect", handler)

    def subscribe(self, handler):
        return self._handlers.setdefault("subscribe", handler)

    def publish(self, handler):
        return self._handlers.setdefault("publish", handler)

    def event(self, name=None):
        """Names the handler of an event; without a name, of all others."""
        return lambda handler: self._events.setdefault(name, handler)

    def notice(self, handler):
        self._notice = handler
        return handler

    async def handle_async(self, signature, body):
        """Answers a request, from its signature and its body as received: status and body."""
        if not verify(signature, body, self._secrets):
            return 401, b'{"message":"the signature is missing, wrong or too old"}'
        request = _parsed(body)
        if not isinstance(request, dict):
            return 400, b'{"message":"the body isn\'t JSON"}'
        try:
            for notice in request.get("notices", []):
                if self._notice:
                    await _awaited(self._notice(notice, request.get("node")))
        except Exception:
            log.exception("the handler of notices has failed")
            return 500, json.dumps({"message": FAILURE}).encode()
        answers = await asyncio.gather(*map(self._answer, request.get("questions", [])))
        return 200, f'{{"answers":[{",".join(answers)}]}}'.encode()

    def handle(self, signature, body):
        """`handle_async` where no event loop runs."""
        return asyncio.run(self.handle_async(signature, body))

    async def _answer(self, question):
        """The answer as JSON: one that can't be encoded fails its own question only."""
        answer, is_event = Answer(), question["hook"] == "event"
        try:
            own = self._events.get(question["event"]) if is_event and question["event"] is not None else None
            other = self._events.get(None) if is_event else self._handlers.get(question["hook"])
            if not is_event:
                answer.deny()
            if own:
                await _awaited(own(question, answer, *question["arguments"]))
            elif other:
                await _awaited(other(question, answer))
            else:
                answer.deny("unknown_event" if is_event else "not_allowed")
            return json.dumps({"id": question["id"], **answer.fields}, allow_nan=False)
        except Exception:
            log.exception("the handler of a hook has failed: %s %s", question["hook"], question.get("event", ""))
            return json.dumps({"id": question["id"], "allow": False, "code": "internal", "message": FAILURE})

    def wsgi(self, environ, start_response):
        """A WSGI application."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        status, body = 413, b'{"message":"the body is too long"}'
        if length <= REQUEST_BYTES_MAX:
            status, body = self.handle(environ.get("HTTP_STENTOR_SIGNATURE"), environ["wsgi.input"].read(length))
        start_response(f"{status} {'OK' if status == 200 else 'Refused'}", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    async def asgi(self, scope, receive, send):
        """An ASGI application, also for `app.mount("/hooks", hooks.asgi)`."""
        if scope["type"] != "http":
            raise RuntimeError(f"hooks come by HTTP, not by {scope['type']}")
        received, more = bytearray(), True
        while more and len(received) <= REQUEST_BYTES_MAX:
            event = await receive()
            received += event.get("body", b"")
            more = event.get("more_body", False)
        status, body = 413, b'{"message":"the body is too long"}'
        if len(received) <= REQUEST_BYTES_MAX:
            signature = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"stentor-signature"), None)
            status, body = await self.handle_async(signature, received)
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]})
        await send({"type": "http.response.body", "body": body})


async def _awaited(result):
    return await result if inspect.isawaitable(result) else result
