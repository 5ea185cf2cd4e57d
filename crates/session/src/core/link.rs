//! Carries out the entries of the application link on a core, in order, a bounded number per turn.

use super::Protocols;
use super::tasks::{TIMELINE_STEPS, TIMELINES_LISTED_MAX};
use crate::identity::ClientId;
use crate::ports::{
    LIST_BYTES_MAX, LinkApp, LinkBroadcast, LinkChange, LinkEntry, LinkParser, LinkSelect, LinkSelected,
    LinkSession, LinkSocket, RoomsQuery, SessionInfo, SessionList,
};
use crate::protocols::engineio;
use crate::protocols::link::write_records;
use crate::shared::link::LinkBatch;
use crate::shared::link_tasks::packet;
use crate::shared::tasks::{FoundRooms, LinkCall, LinkTask, LinkWork};
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

/// Steps of work for an entry. One step is about 50 ns.
const ENTRY_STEPS: usize = 16;
/// Steps of work for the name of a room.
const NAME_STEPS: usize = 4;
/// Steps of work for a socket that a `Select` changes.
const SELECT_STEPS: usize = 8;
/// Steps of work for a recipient of a broadcast.
const DELIVERY_STEPS: usize = 2;

/// The entries that a core has taken from its inbox and not carried out.
#[derive(Default)]
pub struct LinkQueue {
    batches: VecDeque<Box<LinkBatch>>,
    /// The `Select` that is being carried out. Later entries wait for it.
    select: Option<Box<Selecting>>,
}

/// A `Select` that is being carried out.
struct Selecting {
    app: LinkApp,
    clients: Vec<ClientId>,
    selected: LinkSelected,
}

/// The reason why [`Protocols::carry_out_link`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkProgress {
    /// All entries are carried out.
    Done,
    /// The effects of the last entries must be carried out first.
    Pump,
    /// The turn's work is used up.
    Yield,
}

impl LinkQueue {
    /// Returns `true` if no entry waits.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Adds entries.
    pub fn push(&mut self, batch: Box<LinkBatch>) {
        self.batches.push_back(batch);
    }
}

impl Protocols {
    /// Carries out entries of the link, with the steps that the turn has left.
    pub fn carry_out_link(&mut self, queue: &mut LinkQueue, steps: &mut usize) -> LinkProgress {
        loop {
            let Some(batch) = queue.batches.front_mut() else { return LinkProgress::Done };
            if *steps == 0 {
                return LinkProgress::Yield;
            }
            if let Some(select) = &mut queue.select {
                if !self.change_selected(select, steps) {
                    return LinkProgress::Yield;
                }
                queue.select = None;
            }
            let Some(entry) = batch.entries.pop_front() else {
                self.ex.shared_core().inbox.task_finished(batch.bytes);
                queue.batches.pop_front();
                if let Some(link) = &self.ex.link {
                    link.space();
                }
                continue;
            };
            *steps = steps.saturating_sub(ENTRY_STEPS + entry.names() * NAME_STEPS);
            // The response to a POST leaves before the effects of its messages.
            let precedes = matches!(entry, LinkEntry::Handled(_))
                && !matches!(batch.entries.front(), Some(LinkEntry::Handled(_)));
            let link = batch.link;
            match entry {
                LinkEntry::Broadcast(app, namespace, broadcast) => {
                    self.broadcast(link, app, &namespace, &broadcast, steps);
                }
                LinkEntry::Select(app, namespace, select) => {
                    queue.select = Some(Box::new(self.select(link, app, namespace, select)));
                }
                entry => self.handle_entry(link, entry),
            }
            if precedes || self.ex.budget.published_much() {
                return LinkProgress::Pump;
            }
        }
    }

    /// Offers the link the reports that it has refused.
    pub fn retry_link_reports(&mut self) {
        let refused = self.ex.link.as_mut().map(|link| link.take_refused()).unwrap_or_default();
        for id in refused {
            if let Some(link) = self.clients.engineio.get_mut(id).and_then(engineio::Client::link_mut) {
                link.pass_refused(&mut self.ex, id);
            }
            self.weigh_linked(id);
        }
    }

    fn weigh_linked(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.weigh(&mut self.ex);
        }
    }

    /// Approximate memory of the rooms of a worker's client.
    pub fn held_by_rooms(&self, client: ClientId) -> usize {
        self.ex.link.as_ref().map_or(0, |link| link.members.held_bytes(client))
    }

    fn client_of(&self, session: LinkSession) -> Option<ClientId> {
        self.ex.link.as_ref()?.client_of(session)
    }

    /// Carries out an entry for one session. Without effect if the session has ended.
    fn handle_entry(&mut self, link: u32, entry: LinkEntry) {
        let Some(id) = entry.session().and_then(|session| self.client_of(session)) else { return };
        let Self { ex, clients, .. } = self;
        let Some(client) = clients.engineio.get_mut(id) else { return };
        let Some(app) = client.link().map(|link| link.app) else { return };
        let members = |ex: &mut crate::executor::Executor,
                       change: &mut dyn FnMut(&mut crate::executor::link::Members)| {
            if let Some(link) = &mut ex.link {
                change(&mut link.members);
            }
        };
        match entry {
            LinkEntry::Accept(_, acceptance) => client.accept(ex, link, *acceptance),
            LinkEntry::Refuse(_, refusal) => client.refuse(ex, *refusal),
            LinkEntry::Own(_) => client.link_mut().into_iter().for_each(|state| state.owner = link),
            LinkEntry::Send { is_volatile, wants_receipt, messages, .. } => {
                ex.budget.count_published(messages.iter().map(|message| message.data().len()).sum());
                client.send_unit(ex, &messages, (is_volatile, wants_receipt));
            }
            LinkEntry::Close { discards, .. } => client.close_for_worker(ex, discards),
            LinkEntry::Add { socket, .. } => {
                let mut socket = Some(*socket);
                members(ex, &mut |members| {
                    socket.take().into_iter().for_each(|socket| members.add(app, id, socket))
                });
            }
            LinkEntry::Delete { namespace, .. } => {
                members(ex, &mut |members| members.remove(app, id, &namespace))
            }
            LinkEntry::Join { namespace, rooms, .. } => {
                members(ex, &mut |members| members.join(app, id, &namespace, &rooms));
            }
            LinkEntry::Leave { namespace, room, .. } => {
                members(ex, &mut |members| members.leave(app, id, &namespace, &room));
            }
            LinkEntry::Pause(_) => client.link_mut().into_iter().for_each(|link| link.set_paused(ex, true)),
            LinkEntry::Continue(_) => {
                client.link_mut().into_iter().for_each(|link| link.set_paused(ex, false))
            }
            LinkEntry::Handled(_) => client.link_mut().into_iter().for_each(|link| link.handle_handled(ex)),
            LinkEntry::Describe { request, .. } => client.describe_to_worker(ex, request),
            LinkEntry::Broadcast(..) | LinkEntry::Select(..) => {}
        }
    }

    /// The clients of this core that a broadcast or a `Select` is for.
    fn find(
        &self,
        (link, is_local): (u32, bool),
        app: LinkApp,
        namespace: &Arc<str>,
        (rooms, except): (&[Box<str>], &[Box<str>]),
    ) -> Vec<ClientId> {
        let sessions = self.ex.link.as_ref();
        let mut found = sessions
            .map(|sessions| sessions.members.select(app, namespace, rooms, except))
            .unwrap_or_default();
        if is_local {
            let owner = |id: ClientId| Some(self.clients.engineio.get(id)?.link()?.owner);
            found.retain(|id| owner(*id) == Some(link));
        }
        found
    }

    fn broadcast(
        &mut self,
        link: u32,
        app: LinkApp,
        namespace: &Arc<str>,
        broadcast: &LinkBroadcast,
        steps: &mut usize,
    ) {
        let selection = (&broadcast.rooms[..], &broadcast.except[..]);
        let found = self.find((link, broadcast.is_local), app, namespace, selection);
        let mut sessions = Vec::with_capacity(found.len());
        for id in found {
            let Some(client) = self.clients.engineio.get_mut(id) else { continue };
            if broadcast.is_volatile && !client.takes_volatile() {
                continue;
            }
            if let Some(link) = client.link_mut()
                && let Some(session) = link.hub_session
            {
                link.output.is_drained = false;
                sessions.push(session);
            }
        }
        if sessions.is_empty() {
            return;
        }
        *steps = steps.saturating_sub(sessions.len() * DELIVERY_STEPS);
        // Volatile messages are for sessions without anything pending, so the hub drops none.
        self.ex.send_records(sessions, write_records(&broadcast.messages), false);
    }

    fn select(&self, link: u32, app: LinkApp, namespace: Arc<str>, select: Arc<LinkSelect>) -> Selecting {
        let selection = (&select.rooms[..], &select.except[..]);
        let clients = self.find((link, select.is_local), app, &namespace, selection);
        Selecting {
            app,
            clients,
            selected: LinkSelected { app, link, namespace, select, sessions: Vec::new() },
        }
    }

    /// Works on a command for sockets of an application. Returns `false` if sockets remain to be changed.
    pub fn work_on_link(&mut self, task: &mut LinkTask, steps: &mut usize) -> bool {
        let LinkTask { app, namespace, work } = task;
        let LinkWork::Change { select, found, .. } = work else { return *steps > 0 };
        let selection = (&select.rooms[..], &select.except[..]);
        let (clients, count) = found.take().unwrap_or_else(|| {
            let all = self.find((0, false), *app, namespace, selection);
            let count = all.len();
            (all, count)
        });
        let (namespace, select) = (namespace.clone(), select.clone());
        let selected = LinkSelected { app: *app, link: 0, namespace, select, sessions: Vec::new() };
        let mut selecting = Selecting { app: *app, clients, selected };
        let is_finished = self.change_selected(&mut selecting, steps);
        let Selecting { clients, selected, .. } = selecting;
        if !selected.sessions.is_empty()
            && let Some(link) = &self.ex.link
        {
            link.report_selected(selected);
        }
        *found = Some((clients, count));
        is_finished
    }

    /// Sends an event of the backend to sockets of an application. Returns their number. Clients of a custom parser wouldn't understand it.
    pub fn send_to_link(
        &mut self,
        app: LinkApp,
        namespace: &Arc<str>,
        broadcast: &LinkBroadcast,
        steps: &mut usize,
    ) -> usize {
        let found = self.find_json(app, namespace, (&broadcast.rooms[..], &broadcast.except[..]));
        if !found.is_empty() {
            self.broadcast(0, app, namespace, broadcast, steps);
        }
        found.len()
    }

    /// Like [`Self::find`], but without clients of a custom parser.
    fn find_json(
        &self,
        app: LinkApp,
        namespace: &Arc<str>,
        selection: (&[Box<str>], &[Box<str>]),
    ) -> Vec<ClientId> {
        let found = self.find((0, false), app, namespace, selection);
        let parser = |id: &ClientId| Some(self.clients.engineio.get(*id)?.link()?.input.unit.parser);
        if found.first().and_then(parser) == Some(LinkParser::Json) { found } else { Vec::new() }
    }

    /// Sends an event of the backend that sockets of an application acknowledge. Returns their number, and the number of the call. If too many
    /// acknowledgements are awaited, the event requests none.
    pub fn call_link(
        &mut self,
        app: LinkApp,
        namespace: &Arc<str>,
        LinkCall { call, rooms, except }: &LinkCall,
        steps: &mut usize,
    ) -> (usize, Option<u32>) {
        let found = self.find_json(app, namespace, (&rooms[..], &except[..]));
        let Some(link) = self.ex.link.as_mut().filter(|_| !found.is_empty()) else { return (0, None) };
        let number = link.calls.begin(namespace, &found, &call.answered);
        let Some(message) = packet(namespace, Some(&call.event), &call.data, number) else {
            return (0, number);
        };
        let broadcast = LinkBroadcast {
            rooms: rooms.clone(),
            except: except.clone(),
            is_local: false,
            is_volatile: false,
            is_compressed: true,
            messages: std::iter::once(message).collect(),
        };
        self.broadcast(0, app, namespace, &broadcast, steps);
        (number.map_or(0, |_| found.len()), number)
    }

    /// Lists sockets of an application.
    pub fn list_link(
        &self,
        app: LinkApp,
        namespace: &Arc<str>,
        (rooms, except): &(Vec<Box<str>>, Vec<Box<str>>),
        limit: usize,
        steps: &mut usize,
    ) -> SessionList {
        let found = self.find((0, false), app, namespace, (&rooms[..], &except[..]));
        *steps = steps.saturating_sub(found.len() + limit.min(found.len()) * ENTRY_STEPS);
        let mut list = SessionList { count: found.len(), ..SessionList::default() };
        for id in found {
            if list.sessions.len() >= limit || list.bytes >= LIST_BYTES_MAX {
                break;
            }
            let session = self.clients.engineio.get(id).and_then(|client| client.link()?.hub_session);
            let members = self.ex.link.as_ref().map(|link| &link.members);
            let socket = members.and_then(|members| members.socket(id, namespace));
            if let (Some(session), Some(LinkSocket { id, rooms, .. })) = (session, socket) {
                let mut bytes = list.bytes;
                let rooms = rooms.into_iter().map(String::from).take_while(|name| {
                    bytes += name.len();
                    bytes <= LIST_BYTES_MAX
                });
                let rooms = rooms.collect();
                let mut info = SessionInfo { id: id.into(), rooms, ..self.describe(session, "link", 0) };
                if list.sessions.len() < TIMELINES_LISTED_MAX {
                    info.details.timeline = self.timeline_of(session);
                    *steps = steps.saturating_sub(TIMELINE_STEPS);
                }
                list.push(info);
            }
        }
        list
    }

    /// Lists rooms of an application.
    pub fn list_link_rooms(
        &self,
        app: LinkApp,
        namespace: &Arc<str>,
        query: &RoomsQuery,
        steps: &mut usize,
    ) -> FoundRooms {
        let mut found = FoundRooms::default();
        let Some(link) = &self.ex.link else { return found };
        // One room more than the limit shows that the list is truncated.
        for (name, members) in link.members.rooms(app, namespace, query).take(query.limit + 1) {
            *steps = steps.saturating_sub(ENTRY_STEPS);
            found.add(name, members, query.limit);
        }
        found
    }

    /// Changes selected sockets. Returns `false` if some remain.
    fn change_selected(&mut self, selecting: &mut Selecting, steps: &mut usize) -> bool {
        let Selecting { app, clients, selected } = selecting;
        let Some(link) = &mut self.ex.link else { return true };
        while let Some(id) = clients.pop() {
            if *steps == 0 {
                clients.push(id);
                return false;
            }
            let LinkSelect { change, targets, .. } = &*selected.select;
            *steps = steps.saturating_sub(SELECT_STEPS + targets.len());
            // The client may have ended since the selection began.
            let state = self.clients.engineio.get(id).and_then(engineio::Client::link);
            let Some(session) = state.map(|state| state.session) else { continue };
            let namespace = &selected.namespace;
            match change {
                LinkChange::Join => link.members.join(*app, id, namespace, targets),
                LinkChange::Leave => {
                    targets.iter().for_each(|room| link.members.leave(*app, id, namespace, room));
                }
                LinkChange::Disconnect { .. } => link.members.remove(*app, id, namespace),
            }
            selected.sessions.push(session);
        }
        if !selected.sessions.is_empty() {
            let done = LinkSelected { sessions: mem::take(&mut selected.sessions), ..selected.clone() };
            link.report_selected(done);
        }
        true
    }
}
