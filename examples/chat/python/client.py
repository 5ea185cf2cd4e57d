"""A client of the chat for a terminal: client.py NICKNAME [URL]."""

import asyncio
import sys

import socketio


async def main(nickname, url="http://127.0.0.1:8000"):
    sio = socketio.AsyncClient()
    sio.on("message", lambda said: print(f"{said['from']}: {said['text']}"))
    sio.on("private", lambda said: print(f"{said['from']} to you: {said['text']}"))
    sio.on("joined", lambda name: print(f"{name} has joined"))
    sio.on("left", lambda name: print(f"{name} has left"))
    sio.on("disconnect", lambda reason: print(f"disconnected: {reason}"))
    await sio.connect(url, auth={"nickname": nickname})
    print("Type a message, /room NAME, or /to NICKNAME TEXT. Ctrl+D ends.")
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, _, rest = line.strip().partition(" ")
        if command == "/room":
            await sio.call("room", rest)
        elif command == "/to":
            await sio.call("private", tuple(rest.split(" ", 1)))
        elif command:
            await sio.call("message", line.strip())
    await sio.disconnect()


asyncio.run(main(*sys.argv[1:]))
