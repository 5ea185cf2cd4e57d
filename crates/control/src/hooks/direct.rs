//! Messages in answers that go to sessions by their ids, on any node; and the count of messages that nobody receives.

use super::Hook;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use stentor_hub::{Data, Tally};
use stentor_ports::{Busy, Command, CommandError, Commands, Concerned, Done, Recipients, Target};

/// A message to sessions that an answer names by their ids, without the session that the answer is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Direct {
    /// The sessions. The members of the message's rooms are left out, because they receive the message there.
    pub(super) target: Target,
    pub(super) event: Arc<str>,
    pub(super) data: Data,
    pub(super) volatile: bool,
    /// `true` if the message counts as one without recipients when none of the sessions exists.
    pub(super) is_counted: bool,
}

impl Direct {
    /// Gives the data plane the message.
    ///
    /// # Errors
    /// An inbox is full.
    pub(super) fn send(&self, commands: &dyn Commands, hook: &Arc<Hook>) -> Result<(), Busy> {
        let is_refused = Arc::new(AtomicBool::new(false));
        let (refused, hook, event) = (is_refused.clone(), Arc::downgrade(hook), self.event.clone());
        let is_counted = self.is_counted;
        let done = Done::new(move |result: Result<Concerned, CommandError>| match result {
            Ok(Concerned { sessions: 0, missing_nodes, .. }) if is_counted && missing_nodes.is_empty() => {
                count_unreceived(&hook, &event);
            }
            Ok(_) | Err(CommandError::Stopped) => {}
            Err(CommandError::Busy) => refused.store(true, Ordering::SeqCst),
        });
        let Self { target, event, data, volatile, .. } = self;
        let (event, data, volatile) = (Some(event.clone()), data.clone(), *volatile);
        commands.command(target.clone(), Command::Emit { event, data, volatile, done });
        if is_refused.load(Ordering::SeqCst) { Err(Busy) } else { Ok(()) }
    }
}

fn count_unreceived(hook: &Weak<Hook>, event: &str) {
    let Some(hook) = hook.upgrade() else { return };
    hook.metrics.emits_without_recipients.inc();
    tracing::debug!(hook = &*hook.name, event, "a message in an answer of a hook has no recipient");
}

/// Counts the recipients of a message to rooms. The last core that drops it reports a message that has none.
struct Recipient {
    hook: Weak<Hook>,
    event: Arc<str>,
    is_sent: AtomicBool,
    sessions: AtomicUsize,
}

impl Tally for Recipient {
    fn add(&self, sessions: usize) {
        self.is_sent.store(true, Ordering::Relaxed);
        self.sessions.fetch_add(sessions, Ordering::Relaxed);
    }
}

impl Drop for Recipient {
    fn drop(&mut self) {
        if *self.is_sent.get_mut() && *self.sessions.get_mut() == 0 {
            count_unreceived(&self.hook, &self.event);
        }
    }
}

/// Returns the counter of a message to rooms.
pub(super) fn recipients(hook: &Arc<Hook>, event: &Arc<str>) -> Recipients {
    let (hook, event) = (Arc::downgrade(hook), event.clone());
    let (is_sent, sessions) = (AtomicBool::new(false), AtomicUsize::new(0));
    Recipients(Some(Arc::new(Recipient { hook, event, is_sent, sessions })))
}
