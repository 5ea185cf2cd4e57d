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
        let (is_counted, named) = (self.is_counted, self.target.sessions.len());
        let done = Done::new(move |result: Result<Concerned, CommandError>| match result {
            Ok(Concerned { sessions, missing_nodes, .. }) => {
                if !missing_nodes.is_empty() && sessions < named {
                    count_unconfirmed(&hook, &event);
                } else if sessions == 0 && is_counted {
                    count_unreceived(&hook, &event);
                }
            }
            Err(CommandError::Stopped) => {}
            Err(CommandError::Busy) => refused.store(true, Ordering::SeqCst),
        });
        let Self { target, event, data, volatile, .. } = self;
        let (event, data, volatile) = (Some(event.clone()), data.clone(), *volatile);
        commands.command(target.clone(), Command::Emit { event, data, volatile, done });
        if is_refused.load(Ordering::SeqCst) { Err(Busy) } else { Ok(()) }
    }
}

/// Counts a message to sessions whose delivery isn't confirmed.
pub(super) fn count_unconfirmed(hook: &Weak<Hook>, event: &str) {
    let Some(hook) = hook.upgrade() else { return };
    hook.metrics.emits_unconfirmed.inc();
    tracing::debug!(
        hook = &*hook.name,
        event,
        "a message in an answer of a hook may not have been delivered"
    );
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

#[cfg(test)]
mod tests {
    use super::super::{HookKind, HookOptions, Hooks};
    use super::*;
    use stentor_hub::SessionId;
    use stentor_ports::fake::{Call, Node};
    use stentor_ports::{IdKey, Ledger, PublicId};

    /// Sends a message to two sessions. Returns the counts of messages without recipients and of unconfirmed ones.
    fn send(is_counted: bool, answer: Result<Concerned, CommandError>) -> (Result<(), Busy>, [u64; 2]) {
        let options = HookOptions {
            name: "chat".into(),
            url: "http://127.0.0.1:1".into(),
            on: vec![HookKind::Event],
            ..HookOptions::default()
        };
        let hooks = Hooks::new("n", &[options], &Arc::new(Ledger::new(1 << 20))).unwrap();
        let commands = Node::new(move |call| {
            let Call::Command(_, Command::Emit { done, .. }) = call else { panic!("it sends a message") };
            done.answer(answer.clone());
            Ok(())
        });
        let id = |number| PublicId::of(IdKey { seed: [1, 2], cores: 1 }, 0, SessionId::from_bits(number));
        let target = Target::of("/").unwrap().session(id(0)).session(id(1));
        let (event, data) = ("e".into(), Data::Json("1".into()));
        let hook = &hooks.hooks[0];
        let sent = Direct { target, event, data, volatile: false, is_counted }.send(&commands, hook);
        let metrics = &hook.metrics;
        (sent, [metrics.emits_without_recipients.get(), metrics.emits_unconfirmed.get()])
    }

    #[test]
    fn messages_that_may_be_lost_are_counted() {
        let concerned = |sessions, missing: &[&str]| {
            let missing_nodes = missing.iter().map(|node| (*node).to_owned()).collect();
            Ok(Concerned { missing_nodes, ..Concerned::sessions(sessions) })
        };
        for (is_counted, answer, expect) in [
            (true, concerned(2, &[]), [0, 0]),
            (true, concerned(1, &[]), [0, 0]),
            (true, concerned(0, &[]), [1, 0]),
            (false, concerned(0, &[]), [0, 0]),
            (true, concerned(0, &["b"]), [0, 1]),
            (false, concerned(1, &["b", "c"]), [0, 1]),
            (false, concerned(2, &["b"]), [0, 0]),
            (true, Err(CommandError::Stopped), [0, 0]),
        ] {
            assert_eq!(send(is_counted, answer.clone()), (Ok(()), expect), "{answer:?}");
        }
        // The caller tries again, and counts the message if that doesn't help.
        assert_eq!(send(true, Err(CommandError::Busy)), (Err(Busy), [0, 0]));
    }
}
