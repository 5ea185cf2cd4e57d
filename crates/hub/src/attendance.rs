//! Reports of subscriptions that have begun, and of topics that have got their first subscriber of this shard or lost the last one.
//! Off by default: most have no use for them.

use crate::encoder::Encoder;
use crate::notice::Attendance;
use crate::session_id::SessionId;
use crate::shard::Hub;

impl<E: Encoder> Hub<E> {
    /// Reports from now on what [`Hub::take_attendance`] returns.
    pub fn report_attendance(&mut self) {
        self.attendance.get_or_insert_default();
    }

    /// What has changed since the last call, in order. Call it in each turn: it isn't bounded otherwise.
    pub fn take_attendance(&mut self) -> Vec<Attendance> {
        self.attendance.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A topic has a new subscriber.
    #[cold]
    pub(crate) fn attended(&mut self, index: u32, session: SessionId) {
        let (Some(all), Some(state)) = (&mut self.attendance, self.topics.at(index)) else { return };
        if state.members.len() == 1 {
            all.push(Attendance::Occupied(state.topic.clone()));
        }
        all.push(Attendance::Subscribed(session, state.topic.clone()));
    }

    /// A topic has lost a subscriber.
    #[cold]
    pub(crate) fn unattended(&mut self, index: u32) {
        let (Some(all), Some(state)) = (&mut self.attendance, self.topics.at(index)) else { return };
        if state.members.is_empty() {
            all.push(Attendance::Vacated(state.topic.clone()));
        }
    }
}
