"""A python-socketio client that uses the fixture's profile `socketio-client`; prints what it saw as JSON.

    socketio_client.py sync|async polling|websocket|upgrade URL
"""
import asyncio
import json
import sys
import threading

import socketio

TRANSPORTS = {"polling": ["polling"], "websocket": ["websocket"], "upgrade": None}
TIME_S = 50


def sync_client(way, url):
    client = socketio.Client(reconnection=False)
    doge, got_it = [], threading.Event()
    seen = threading.Event()

    @client.on("doge")
    def on_doge(data, *offset):
        doge.append(data)
        seen.set()

    # What a handler returns is the answer.
    client.on("ack", lambda *_: (5, {"test": True}))
    client.on("got it", lambda *_: got_it.set())

    client.connect(url, transports=TRANSPORTS[way], namespaces=["/", "/foo"], wait_timeout=TIME_S)
    answers = [client.call("echo", value, timeout=TIME_S) for value in ("é€😀", {"a": [1, None]})]
    answer = client.call("echo", {"bytes": bytes([0, 1, 254, 255])}, timeout=TIME_S)
    client.emit("doge")
    client.emit("ack")
    seen.wait(TIME_S)
    result = {
        "transport": client.transport(),
        "echo": answers,
        "bytes": list(answer["bytes"]),
        "doge": doge[0].decode(),
        "ids": client.call("getId", timeout=TIME_S) == client.get_sid("/")
        and client.call("getId", namespace="/foo", timeout=TIME_S) == client.get_sid("/foo"),
        "acknowledged": got_it.wait(TIME_S),
    }
    client.disconnect()

    refused = socketio.Client(reconnection=False)
    refusal, told = [], threading.Event()

    @refused.on("connect_error", namespace="/no")
    def on_refusal(data):
        refusal.append(data)
        told.set()

    try:
        refused.connect(url, transports=TRANSPORTS[way], namespaces=["/no"], wait_timeout=TIME_S)
    except socketio.exceptions.ConnectionError:
        pass
    told.wait(TIME_S)
    refused.disconnect()
    return {**result, "refusal": refusal[0]["message"]}


async def async_client(way, url):
    client = socketio.AsyncClient(reconnection=False)
    doge, got_it = asyncio.get_running_loop().create_future(), asyncio.Event()

    @client.on("doge")
    async def on_doge(data, *offset):
        doge.set_result(data)

    @client.on("ack")
    async def on_ack(*_):
        return 5, {"test": True}

    @client.on("got it")
    async def on_got_it(*_):
        got_it.set()

    await client.connect(url, transports=TRANSPORTS[way], namespaces=["/", "/foo"], wait_timeout=TIME_S)
    answers = [await client.call("echo", value, timeout=TIME_S) for value in ("é€😀", {"a": [1, None]})]
    answer = await client.call("echo", {"bytes": bytes([0, 1, 254, 255])}, timeout=TIME_S)
    await client.emit("doge")
    await client.emit("ack")
    bytes_seen = await asyncio.wait_for(doge, TIME_S)
    await asyncio.wait_for(got_it.wait(), TIME_S)
    result = {
        "transport": client.transport(),
        "echo": answers,
        "bytes": list(answer["bytes"]),
        "doge": bytes_seen.decode(),
        "ids": await client.call("getId", timeout=TIME_S) == client.get_sid("/")
        and await client.call("getId", namespace="/foo", timeout=TIME_S) == client.get_sid("/foo"),
        "acknowledged": got_it.is_set(),
    }
    await client.disconnect()

    refused = socketio.AsyncClient(reconnection=False)
    refusal = asyncio.get_running_loop().create_future()

    @refused.on("connect_error", namespace="/no")
    async def on_refusal(data):
        refusal.set_result(data)

    try:
        await refused.connect(url, transports=TRANSPORTS[way], namespaces=["/no"], wait_timeout=TIME_S)
    except socketio.exceptions.ConnectionError:
        pass
    message = (await asyncio.wait_for(refusal, TIME_S))["message"]
    await refused.disconnect()
    return {**result, "refusal": message}


kind, way, url = sys.argv[1:]
print(json.dumps(sync_client(way, url) if kind == "sync" else asyncio.run(async_client(way, url))))
