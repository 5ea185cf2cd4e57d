//! Commands of the control plane for sessions of a shared namespace: this node carries them out, and Socket.IO's servers do.

use super::Bridge;
use super::namespace::{Namespace, event};
use crate::socketio::Selection;
use std::sync::Arc;
use stentor_edge::{Command, Done, Target};
use stentor_hub::Room;

impl Bridge {
    /// The command for this node alone, which asks the other servers when it has been carried out. If it is refused, no server
    /// does anything.
    pub(super) fn then_ask(
        self: &Arc<Self>,
        namespace: &Arc<Namespace>,
        target: &Target,
        command: Command,
    ) -> Command {
        let (bridge, namespace) = (self.clone(), namespace.clone());
        match command {
            // The broker has those for the members of rooms.
            Command::Emit { event: name, data, volatile, done } => {
                let Some(selection) = sessions_only(target) else {
                    return Command::Emit { event: name, data, volatile, done };
                };
                let event = event(name.clone(), &data);
                let done = Done::new(move |result| {
                    if result.is_ok() {
                        bridge.emit_unless_full(&namespace, selection, event, volatile);
                    }
                    done.answer(result);
                });
                Command::Emit { event: name, data, volatile, done }
            }
            other => other,
        }
    }

    /// Nobody waits for room for it.
    fn emit_unless_full(
        &self,
        namespace: &Namespace,
        selection: Selection,
        event: crate::socketio::Event,
        volatile: bool,
    ) {
        if self.emit(namespace, selection, event, volatile).is_err() {
            crate::metrics::count(&self.counters.not_sent);
        }
    }
}

/// The sessions that a target names, if any, unless they are members of its rooms.
fn sessions_only(target: &Target) -> Option<Selection> {
    let rooms: Vec<Arc<str>> = target.session_ids().map(|id| id.to_string().into()).collect();
    let named_rooms = target.rooms().iter();
    if rooms.is_empty() || target.rooms().contains(target.all_members()) {
        return None;
    }
    let except = named_rooms.chain(target.except_rooms()).map(Room::name).map(Arc::from);
    let except = except.chain(target.except_session_ids().map(|id| id.to_string().into()));
    Some(Selection { rooms, except: except.collect() })
}
