//! Reports new subscriptions, and topics that gained their first subscriber of this shard or lost their last
//! one. Off by default, because most applications don't use the reports.

use crate::encoder::Encoder;
use crate::notice::Attendance;
use crate::session_id::SessionId;
use crate::shard::Hub;

impl<E: Encoder> Hub<E> {
    /// Enables the reports of [`Hub::take_attendance`].
    pub fn report_attendance(&mut self) {
        self.attendance.get_or_insert_default();
    }

    /// Returns the changes since the last call, in order. Call it in each turn, because the list isn't
    /// bounded otherwise.
    pub fn take_attendance(&mut self) -> Vec<Attendance> {
        self.attendance.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Reports a topic's new subscriber.
    #[cold]
    pub(crate) fn attended(&mut self, index: u32, session: SessionId) {
        let (Some(all), Some(state)) = (&mut self.attendance, self.topics.at(index)) else { return };
        if state.members.len() == 1 {
            all.push(Attendance::Occupied(state.topic.clone()));
        }
        all.push(Attendance::Subscribed(session, state.topic.clone()));
    }

    /// Reports that a topic has lost a subscriber.
    #[cold]
    pub(crate) fn unattended(&mut self, index: u32) {
        let (Some(all), Some(state)) = (&mut self.attendance, self.topics.at(index)) else { return };
        if state.members.is_empty() {
            all.push(Attendance::Vacated(state.topic.clone()));
        }
    }
}
