"""python-socketio, version 4 or 5: see ../README.md.

    socketio_client.py threads|asyncio polling|websocket|upgrade
"""
import asyncio
import os
import sys

import socketio
from lines import command, report

kind, transport = sys.argv[1:]
TRANSPORTS = {"polling": ["polling"], "websocket": ["websocket"], "upgrade": None}[transport]
RECONNECTION = {"reconnection_delay": 0.1, "reconnection_delay_max": 1}
NAMES = ["hello", "ack", "got it", "stentor:token_expiring"]


def listen(client, namespace):
    """Registers handlers, which both kinds of client call alike."""
    client.on("connect", lambda *_: report("connect", namespace=namespace), namespace=namespace)
    # Version 5 gives a reason.
    client.on("disconnect", lambda *reason: report("disconnect", namespace=namespace, reason=reason), namespace=namespace)

    def refused(error=None, *_):
        error = error if isinstance(error, dict) else {"message": error}
        code = (error.get("data") or {}).get("code")
        report("refused", namespace=namespace, message=str(error.get("message", error)), code=code)

    client.on("connect_error", refused, namespace=namespace)

    def handler(name):
        def on_event(*args):
            report("event", name=name, args=args)
            # What a handler returns is the acknowledgement.
            return (5, {"test": True}) if name == "ack" else None

        return on_event

    for name in NAMES:
        client.on(name, handler(name), namespace=namespace)


def connect_options(wanted):
    options = {"transports": TRANSPORTS, "namespaces": wanted["namespaces"]}
    if wanted.get("auth") is not None:
        options["auth"] = wanted["auth"]
    return options


def data_of(wanted):
    # A tuple is several arguments, a list is one.
    return tuple(wanted["args"])


def answer_to(wanted):
    return lambda *args: report("answer", id=wanted["id"], args=args)


def threads():
    client = None
    while wanted := command():
        if wanted["do"] == "connect":
            client = socketio.Client(**RECONNECTION)
            for namespace in wanted["namespaces"]:
                listen(client, namespace)
            try:
                client.connect(wanted["url"], **connect_options(wanted))
            except socketio.exceptions.ConnectionError as error:
                report("failed", message=str(error))
        elif wanted["do"] == "emit":
            client.emit(wanted["name"], data_of(wanted))
        elif wanted["do"] == "call":
            client.emit(wanted["name"], data_of(wanted), namespace=wanted["namespace"], callback=answer_to(wanted))
        elif wanted["do"] == "transport":
            report("transport", name=client.transport())
        elif wanted["do"] == "disconnect":
            client.disconnect()


async def on_asyncio():
    client = None
    loop = asyncio.get_running_loop()
    while wanted := await loop.run_in_executor(None, command):
        if wanted["do"] == "connect":
            client = socketio.AsyncClient(**RECONNECTION)
            for namespace in wanted["namespaces"]:
                listen(client, namespace)
            try:
                await client.connect(wanted["url"], **connect_options(wanted))
            except socketio.exceptions.ConnectionError as error:
                report("failed", message=str(error))
        elif wanted["do"] == "emit":
            await client.emit(wanted["name"], data_of(wanted))
        elif wanted["do"] == "call":
            await client.emit(wanted["name"], data_of(wanted), namespace=wanted["namespace"], callback=answer_to(wanted))
        elif wanted["do"] == "transport":
            report("transport", name=client.transport())
        elif wanted["do"] == "disconnect":
            await client.disconnect()


threads() if kind == "threads" else asyncio.run(on_asyncio())
# The library's threads may outlive the last command.
os._exit(0)
