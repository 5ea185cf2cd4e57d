//! Presence: the members of rooms on each node.

use super::codec::{Reader, Writer};
use super::{FrameError, room};
use std::sync::Arc;
use stentor_hub::{Absence, MemberId, PresenceMessage, Room, RoomMember, User};
use stentor_ports::{MemberList, MembersQuery, PublicId};

/// A message about a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceFrame {
    /// The room.
    pub room: Room,
    /// The message.
    pub message: PresenceMessage,
}

impl Writer {
    fn room(&mut self, room: &Room) {
        self.text(room.namespace());
        self.text(room.name());
    }

    fn member(&mut self, member: &RoomMember) {
        self.member_id(member.id);
        self.option(member.user.as_ref(), |w, user| {
            w.text(&user.issuer);
            w.text(&user.subject);
        });
        self.option(member.info.as_deref(), Self::text);
        self.u64(member.since_ms);
    }

    fn member_id(&mut self, id: MemberId) {
        self.text(&PublicId::from(id).to_string());
    }

    fn members(&mut self, members: &[Arc<RoomMember>]) {
        self.list(members.iter(), |w, member| w.member(member));
    }

    pub(super) fn presence(&mut self, PresenceFrame { room, message }: &PresenceFrame) {
        self.room(room);
        match message {
            PresenceMessage::Watch { have } => {
                self.u8(0);
                self.list(have.iter(), |w, (node, version)| {
                    w.u64(*node);
                    w.u64(*version);
                });
            }
            PresenceMessage::Delta { from, to, count, joined, left } => {
                self.u8(1);
                self.u64(*from);
                self.u64(*to);
                self.len(*count);
                self.members(joined);
                self.list(left.iter(), |w, (id, absence)| {
                    w.member_id(*id);
                    w.u8(match absence {
                        Absence::Unsubscribed => 0,
                        Absence::Ended => 1,
                        Absence::Suspended => 2,
                    });
                });
            }
            PresenceMessage::Snapshot { version, count, members } => {
                self.u8(2);
                self.u64(*version);
                self.len(*count);
                self.members(members);
            }
            PresenceMessage::Current { version } => {
                self.u8(3);
                self.u64(*version);
            }
        }
    }

    pub(super) fn members_query(&mut self, MembersQuery { room, after, limit }: &MembersQuery) {
        self.room(room);
        self.option(*after, |w, after| w.text(&after.to_string()));
        self.len(*limit);
    }

    pub(super) fn member_list(&mut self, list: &MemberList) {
        self.members(&list.members);
        self.u8(u8::from(list.has_more));
        self.len(list.count);
    }
}

impl Reader {
    fn room(&mut self) -> Result<Room, FrameError> {
        let everybody = Room::all_members(&self.text()?).map_err(|_| FrameError::Name)?;
        room(&everybody, &self.text()?)
    }

    fn public_id(&mut self) -> Result<PublicId, FrameError> {
        PublicId::parse(&self.text()?).ok_or(FrameError::Malformed)
    }

    fn member(&mut self) -> Result<Arc<RoomMember>, FrameError> {
        let id = self.public_id()?.into();
        let user = self.option(|r| Ok(User { issuer: r.text()?, subject: r.text()? }))?;
        let info = self.option(Self::text)?;
        // The info is sent to clients as it is.
        if info.as_deref().is_some_and(|info| stentor_json::check(info).is_err()) {
            return Err(FrameError::Malformed);
        }
        Ok(Arc::new(RoomMember { id, user, info, since_ms: self.u64()? }))
    }

    fn count(&mut self) -> Result<usize, FrameError> {
        Ok(self.u32()? as usize)
    }

    pub(super) fn presence(&mut self) -> Result<PresenceFrame, FrameError> {
        let room = self.room()?;
        let message = match self.u8()? {
            0 => PresenceMessage::Watch { have: self.list(|r| Ok((r.u64()?, r.u64()?)))? },
            1 => PresenceMessage::Delta {
                from: self.u64()?,
                to: self.u64()?,
                count: self.count()?,
                joined: self.list(Self::member)?,
                left: self.list(|r| {
                    let id = r.public_id()?.into();
                    let absence = match r.u8()? {
                        0 => Absence::Unsubscribed,
                        1 => Absence::Ended,
                        2 => Absence::Suspended,
                        _ => return Err(FrameError::Malformed),
                    };
                    Ok((id, absence))
                })?,
            },
            2 => PresenceMessage::Snapshot {
                version: self.u64()?,
                count: self.count()?,
                members: self.list(Self::member)?,
            },
            3 => PresenceMessage::Current { version: self.u64()? },
            _ => return Err(FrameError::Malformed),
        };
        Ok(PresenceFrame { room, message })
    }

    pub(super) fn members_query(&mut self) -> Result<MembersQuery, FrameError> {
        Ok(MembersQuery { room: self.room()?, after: self.option(Self::public_id)?, limit: self.count()? })
    }

    pub(super) fn member_list(&mut self) -> Result<MemberList, FrameError> {
        let members = self.list(Self::member)?;
        Ok(MemberList { members, has_more: self.flag()?, count: self.count()?, ..MemberList::default() })
    }
}
