//! Commands for the sockets of applications whose clients are served by workers. Each core does its part.

use super::gather::Gather;
use super::tasks::{Call, FoundRooms, LinkCall, LinkTask, LinkWork, Names, Task};
use super::{ControlCommand, Shared};
use crate::ports::{
    Command, Concerned, Done, LinkApp, LinkBroadcast, LinkChange, LinkMessage, LinkSelect, RoomList,
    RoomsQuery, Target,
};
use std::sync::Arc;
use stentor_hub::{Data, Room};
use stentor_json::write_string;

/// The event as a packet of Socket.IO. `number`: its clients acknowledge it.
pub(crate) fn packet(
    namespace: &str,
    event: Option<&str>,
    data: &Data,
    number: Option<u32>,
) -> Option<LinkMessage> {
    let arguments = match data {
        Data::Json(json) => json,
        Data::Arguments { json, attachments } if attachments.is_empty() => json,
        _ => return None,
    };
    let mut text = b"2".to_vec();
    if namespace != "/" {
        text.extend_from_slice(namespace.as_bytes());
        text.push(b',');
    }
    number.into_iter().for_each(|number| text.extend_from_slice(number.to_string().as_bytes()));
    text.push(b'[');
    write_string(&mut text, event.unwrap_or("message"));
    if !arguments.is_empty() {
        text.push(b',');
        text.extend_from_slice(arguments);
    }
    text.push(b']');
    Some(LinkMessage::Text(text.into()))
}

fn names<'a>(rooms: impl IntoIterator<Item = &'a Room>) -> Names {
    rooms.into_iter().filter(|room| !room.is_all_members()).map(|room| room.name().into()).collect()
}

impl Shared {
    /// Divides a command for sockets of an application into tasks of all cores.
    pub(super) fn submit_link(&self, app: LinkApp, target: &Target, command: Command) {
        let namespace: Arc<str> = target.namespace().into();
        // All sockets are selected without rooms.
        let is_everybody = target.rooms.iter().any(Room::is_all_members);
        let rooms = if is_everybody { Vec::new() } else { names(&target.rooms) };
        let except = names(&target.except_rooms);
        let cores = if rooms.is_empty() && !is_everybody { 0 } else { self.cores };
        let put = |done: Done<Concerned>, work: &dyn Fn(Arc<Gather<Concerned>>) -> LinkWork| {
            let gather = Gather::new(cores, done);
            self.put_link((app, cores), &namespace, &gather, || work(gather.clone()));
        };
        let change = |change, targets, done| {
            let select =
                LinkSelect { change, is_local: false, rooms: rooms.clone(), except: except.clone(), targets };
            let select = Arc::new(select);
            put(done, &|gather| LinkWork::Change { select: select.clone(), found: None, gather });
        };
        match command {
            Command::Emit { event, data, volatile, done } => {
                let Some(message) = packet(&namespace, event.as_deref(), &data, None) else {
                    return done.answer(Ok(Concerned::default()));
                };
                let broadcast = Arc::new(LinkBroadcast {
                    rooms: rooms.clone(),
                    except: except.clone(),
                    is_local: false,
                    is_volatile: volatile,
                    is_compressed: true,
                    messages: std::iter::once(message).collect(),
                });
                put(done, &|gather| LinkWork::Send { broadcast: broadcast.clone(), gather });
            }
            Command::Call { event, data, timeout, answered, done } => {
                let call = Call { event, data, timeout, answered };
                let call = Arc::new(LinkCall { call, rooms: rooms.clone(), except: except.clone() });
                put(done, &|gather| LinkWork::Call { call: call.clone(), gather });
            }
            Command::Join { rooms: targets, done } => change(LinkChange::Join, names(targets.iter()), done),
            Command::Leave { rooms: targets, done } => change(LinkChange::Leave, names(targets.iter()), done),
            Command::Disconnect { close, done } => {
                change(LinkChange::Disconnect { closes: close }, Vec::new(), done);
            }
            Command::Sessions { limit, done } => {
                let limit = limit.min(crate::ports::SESSIONS_LISTED_MAX);
                let (gather, rooms) = (Gather::new(cores, done), Arc::new((rooms, except)));
                self.put_link((app, cores), &namespace, &gather, || LinkWork::List {
                    rooms: rooms.clone(),
                    limit,
                    gather: gather.clone(),
                });
            }
        }
    }

    /// Lists rooms of an application.
    pub(super) fn submit_link_rooms(&self, app: LinkApp, mut query: RoomsQuery, done: Done<RoomList>) {
        query.limit = query.limit.min(crate::ports::ROOMS_LISTED_MAX);
        let (namespace, query) = (query.namespace.as_str().into(), Arc::new(query));
        let gather = Gather::new(self.cores, FoundRooms::answering(done));
        let work = || LinkWork::Rooms { query: query.clone(), gather: gather.clone() };
        self.put_link((app, self.cores), &namespace, &gather, work);
    }

    fn put_link<T: Default>(
        &self,
        (app, cores): (LinkApp, usize),
        namespace: &Arc<str>,
        gather: &Gather<T>,
        work: impl Fn() -> LinkWork,
    ) {
        let task = || LinkTask { app, namespace: namespace.clone(), work: work() };
        let tasks = (0..cores).map(|core| (core, ControlCommand::Task(Box::new(Task::Link(task())))));
        self.put_all(tasks.collect(), gather);
    }
}
