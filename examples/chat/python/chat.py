"""The handlers of the chat. Nothing here knows of Stentor, but for the name of one key."""

import re

from socketio.exceptions import ConnectionRefusedError

LOBBY = "lobby"
NICKNAME = re.compile(r"[\w-]{1,20}")


def chat(sio):
    async def to_others(sid, event, data):
        room = (await sio.get_session(sid))["room"]
        await sio.emit(event, data, room=room, skip_sid=sid)

    @sio.event
    async def connect(sid, environ, auth):
        nickname = str((auth or {}).get("nickname", "")).strip()
        if not NICKNAME.fullmatch(nickname):
            raise ConnectionRefusedError("choose a nickname of 1 to 20 letters")
        # A socket that continues here, after a restart: its user has neither left nor joined.
        if environ.get("stentor.recovered"):
            return
        await sio.save_session(sid, {"nickname": nickname, "room": LOBBY})
        await sio.enter_room(sid, LOBBY)
        await sio.enter_room(sid, f"user:{nickname}")
        await to_others(sid, "joined", nickname)

    @sio.event
    async def disconnect(sid, reason):
        if reason == "server shutting down":
            return
        session = await sio.get_session(sid)
        await to_others(sid, "left", session["nickname"])

    @sio.event
    async def room(sid, name):
        async with sio.session(sid) as session:
            await to_others(sid, "left", session["nickname"])
            await sio.leave_room(sid, session["room"])
            session["room"] = str(name)
            await sio.enter_room(sid, session["room"])
            await to_others(sid, "joined", session["nickname"])

    @sio.event
    async def message(sid, text):
        session = await sio.get_session(sid)
        await sio.emit("message", {"from": session["nickname"], "text": str(text)}, room=session["room"])

    @sio.event
    async def picture(sid, data):
        session = await sio.get_session(sid)
        await to_others(sid, "picture", {"from": session["nickname"], "data": bytes(data)})

    @sio.event
    async def typing(sid):
        await to_others(sid, "typing", (await sio.get_session(sid))["nickname"])

    @sio.event
    async def private(sid, nickname, text):
        session = await sio.get_session(sid)
        await sio.emit("private", {"from": session["nickname"], "text": str(text)}, room=f"user:{nickname}")
