//! Operations of Socket.IO sessions: emits to several rooms with exceptions, changes of format, and lost
//! connections.

use super::World;
use super::rig::bytes_of;
use super::shadow::How;
use bytes::Bytes;
use std::sync::Arc;
use stentor_hub::{Data, Emit, FormatId, Room, Rooms, Topic};

/// An id that, with high probability, no publication has.
const NO_ID: u64 = 0x0123_4567_89ab_cdef;

impl World {
    fn room(&self, topic: usize) -> Option<Room> {
        match &self.shadow.topics[topic].topic {
            Topic::Room(room) => Some(room.clone()),
            Topic::Feed(_) | Topic::Presence(_) => None,
        }
    }

    /// Chooses any session, sometimes a closed one whose slot may be in use again.
    fn anybody(&mut self) -> Option<usize> {
        let sessions = self.shadow.sessions.len();
        if sessions > 0 && self.random.one_in(4) {
            return Some(self.random.below(sessions));
        }
        self.some_session()
    }

    pub(crate) fn some_how(&mut self) -> How {
        let volatile = self.random.one_in(6);
        let mut how = How { volatile, ..How::default() };
        how.emit = if volatile { Emit::volatile() } else { Emit::default() };
        let (sessions, rooms) = match self.random.below(8) {
            0 | 1 => (1, 0),
            2 => (1 + self.random.below(3), self.random.below(3)),
            3 => (0, 1 + self.random.below(2)),
            _ => (0, 0),
        };
        for _ in 0..sessions {
            let Some(session) = self.anybody() else { break };
            let (core, id) = (self.shadow.sessions[session].core, self.shadow.sessions[session].id);
            how.sessions.push((core, id));
            how.emit = how.emit.except_session(core, id);
        }
        for _ in 0..rooms {
            let topic = self.some_topic();
            let Some(room) = self.room(topic) else { continue };
            how.rooms.push(topic);
            how.emit = how.emit.except_room(room);
        }
        how
    }

    pub(crate) fn emit(&mut self) {
        let core = self.random.below(self.hubs.len());
        let mut topics: Vec<usize> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for _ in 0..1 + self.random.below(5) {
            let topic = self.some_topic();
            let Some(room) = self.room(topic).filter(|room| !room.is_all_members()) else { continue };
            // Sometimes the same name twice.
            names.push(room.name().to_owned());
            if !topics.contains(&topic) {
                topics.push(topic);
            }
        }
        let Ok(rooms) = Rooms::new("/", names.iter().map(String::as_str)) else { return };
        let how = self.some_how();
        self.later();
        let (number, len) = (self.number(), self.some_len());
        self.log(format!("core {core} emits {number} to {topics:?}, {len} bytes, {how:?}"));
        let json = Bytes::from(bytes_of(number, len));
        let attachments: Arc<[Bytes]> = match self.random.below(3) {
            0 => [Bytes::from_static(b"one"), Bytes::from_static(b"three")].into(),
            _ => [].into(),
        };
        let data = Data::Arguments { json, attachments };
        let len = data.len();
        self.hubs[core].handle_emit(self.now, &rooms, None, data, how.emit.clone());
        self.shadow.emit(self.now, core, &topics, number, len, how);
    }

    pub(crate) fn send(&mut self) {
        let Some(session) = self.anybody() else { return };
        let (core, id) = (self.shadow.sessions[session].core, self.shadow.sessions[session].id);
        self.later();
        let (number, len) = (self.number(), self.some_len());
        self.log(format!("core {core} sends {number} to {session} alone, {len} bytes"));
        let data = Data::Json(Bytes::from(bytes_of(number, len)));
        let len = data.len();
        let room = Room::all_members("/").unwrap();
        self.hubs[core].handle_send(self.now, &[id], &room, None, data, false);
        self.shadow.send(self.now, session, number, len);
    }

    pub(crate) fn set_format(&mut self) {
        let Some(session) = self.some_session() else { return };
        let s = &self.shadow.sessions[session];
        // Formats without deltas may only be exchanged with each other.
        let deltas: &[u8] = if s.format.0 == 2 { &[2] } else { &[0, 1, 3] };
        let format = FormatId(*self.random.pick(deltas).unwrap_or(&0));
        self.log(format!("{session} changes to {format:?}"));
        let s = &self.shadow.sessions[session];
        self.hubs[s.core].set_format(s.id, format);
        self.shadow.set_format(session, format);
    }

    pub(crate) fn set_writable(&mut self) {
        let Some(session) = self.some_session() else { return };
        let is_writable = self.random.one_in(2);
        self.log(format!("{session} can take deliveries: {is_writable}"));
        let s = &mut self.shadow.sessions[session];
        self.hubs[s.core].set_writable(s.id, is_writable);
        if s.suspended_at.is_none() {
            s.is_writable = is_writable;
        }
    }

    pub(crate) fn suspend(&mut self) {
        let Some(session) = self.some_session() else { return };
        let s = &self.shadow.sessions[session];
        let (core, id) = (s.core, s.id);
        // Messages that the kernel accepted may not have reached the client.
        let arrived = s.had_before + self.random.below(s.had.len() - s.had_before + 1);
        let had = if self.random.one_in(2) { s.had.len() } else { arrived };
        self.log(format!("the connection of {session} is gone, {had} messages arrived"));
        let expect = self.shadow.suspend(session, had);
        assert_eq!(self.hubs[core].handle_suspend(id), expect);
    }

    pub(crate) fn resume(&mut self) {
        let all = self.living();
        let suspended: Vec<usize> =
            all.iter().copied().filter(|n| self.shadow.sessions[*n].suspended_at.is_some()).collect();
        let among = if suspended.is_empty() || self.random.one_in(10) { &all } else { &suspended };
        let Some(session) = self.random.pick(among).copied() else { return };
        let s = &self.shadow.sessions[session];
        let (core, id) = (s.core, s.id);
        let had = s.had.iter().rev().find(|(_, thing)| thing.recoverable);
        let mut last = had.and_then(|(_, thing)| thing.number());
        let mut last_id = last.map(|number| self.ids[&number]);
        let lies = self.random.one_in(8);
        if lies {
            let known: Vec<(u64, u64)> = self.ids.iter().map(|(number, id)| (*number, *id)).collect();
            (last, last_id) = match self.random.pick(&known) {
                Some((number, id)) if !self.random.one_in(4) => (Some(*number), Some(*id)),
                // An id that no publication has.
                _ => (Some(0), Some(*self.random.pick(&[NO_ID, 0]).unwrap_or(&0))),
            };
        }
        self.log(format!("{session} is back and had {last:?}{}", if lies { ", it says" } else { "" }));
        let got = self.hubs[core].handle_resume(id, last_id);
        assert_eq!(got, self.shadow.resume(session, last));
        if got.is_ok() && lies {
            self.shadow.lied(session);
        }
        if got.is_err() && self.random.one_in(2) {
            self.close(session);
        }
    }

    /// Records a publication's id. Checks that it is always the same, and that no other publication has it.
    pub(crate) fn saw_id(&mut self, number: u64, id: u64) {
        let known = *self.ids.entry(number).or_insert(id);
        assert_eq!(known, id, "two ids of {number}");
        let first = *self.numbers_by_id.entry(id).or_insert(number);
        assert_eq!(first, number, "one id for two");
    }
}
