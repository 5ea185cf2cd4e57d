"""A server of python-socketio 5 that shares rooms over Redis, or a process that only emits.

    bridge_server.py server|emitter URL

Commands, as lines: {"emit": NAME, "data": ARGS, "room": …, "skip_sid": …}, {"call": NAME, "data": ARGS, "to": SID},
{"enter_room": [SID, ROOM]}, {"leave_room": [SID, ROOM]}, {"close_room": ROOM}, {"disconnect": SID}. Each is reported as done. A server reports its port first.
"""
import asyncio
import sys

import socketio
from aiohttp import web
from lines import command, report

kind, url = sys.argv[1:]


def arguments(wanted):
    # A tuple is several arguments.
    data = wanted.get("data", [])
    return data[0] if len(data) == 1 else tuple(data)


async def server():
    io = socketio.AsyncServer(async_mode="aiohttp", client_manager=socketio.AsyncRedisManager(url))

    @io.on("join")
    async def join(sid, room):
        await io.enter_room(sid, room)
        return {"ok": True}

    @io.on("say")
    async def say(sid, message):
        await io.emit("say", message, room=message["room"], skip_sid=sid)
        return {"ok": True}

    app = web.Application()
    io.attach(app)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    report("port", port=site._server.sockets[0].getsockname()[1])
    while wanted := await asyncio.to_thread(command):
        if "emit" in wanted:
            await io.emit(wanted["emit"], arguments(wanted), room=wanted.get("room"), skip_sid=wanted.get("skip_sid"))
        elif "call" in wanted:
            report("answer", answer=await io.call(wanted["call"], arguments(wanted), to=wanted["to"], timeout=5))
        elif "enter_room" in wanted:
            await io.enter_room(*wanted["enter_room"])
        elif "leave_room" in wanted:
            await io.leave_room(*wanted["leave_room"])
        elif "close_room" in wanted:
            await io.close_room(wanted["close_room"])
        elif "disconnect" in wanted:
            await io.disconnect(wanted["disconnect"])
        report("done")
    await runner.cleanup()


def emitter():
    manager = socketio.RedisManager(url, write_only=True)
    while wanted := command():
        if "emit" in wanted:
            manager.emit(wanted["emit"], arguments(wanted), room=wanted.get("room"), skip_sid=wanted.get("skip_sid"))
        elif "close_room" in wanted:
            manager.close_room(wanted["close_room"])
        report("done")


if kind == "server":
    asyncio.run(server())
else:
    emitter()
