//! Messages of this node's application link to those of other nodes, and theirs; the names of applications.

use super::Cluster;
use crate::NodeId;
use crate::engine::{Channel, EngineError};
use crate::finish::Finish;
use crate::frame::{Answered, Frame, Question};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stentor_ports::{Busy, Done, LinkApp, LinkCarrier, LinkList, LinkNodeSink, SessionApp, SessionList};

impl Cluster {
    /// The name of an application of this node.
    pub(crate) fn name_of_application(&self, app: LinkApp) -> Option<Arc<str>> {
        self.observers.applications.get()?.get(usize::from(app.0)).cloned()
    }

    /// The number of an application. One that this node doesn't have gets a number that no application has, and so no sockets.
    pub(super) fn number_of(&self, app: &str) -> LinkApp {
        let known = self.observers.applications.get();
        let place = known.and_then(|apps| apps.iter().position(|known| **known == *app));
        LinkApp(place.map_or(u16::MAX, |place| place as u16))
    }

    /// Adds the names of this node and of their applications to listed sessions of this node.
    pub(crate) fn naming(self: &Arc<Self>, done: Done<SessionList>) -> Done<SessionList> {
        let this = self.clone();
        let named = move |mut list: SessionList| {
            for details in list.sessions.iter_mut().map(|info| &mut info.details) {
                details.node = Some(this.options.name.as_str().into());
                if let Some(SessionApp::Number(app)) = details.app {
                    details.app = this.name_of_application(app).map(SessionApp::Name);
                }
            }
            list
        };
        Done::new(move |result: Result<SessionList, _>| done.answer(result.map(named)))
    }

    /// The links of this node's workers.
    pub(super) fn own_links(&self) -> LinkList {
        let mut links = self.observers.link.get().map_or_else(Vec::new, |link| link.links());
        let name: Arc<str> = self.options.name.as_str().into();
        links.iter_mut().for_each(|link| link.node = Some(name.clone()));
        LinkList::new(links)
    }

    /// Gives a message of another node to the application link, which drops the message if too many wait. Later events never wait for it.
    pub(super) fn deliver_to_link(&self, sender: NodeId, app: &str, message: &Bytes) {
        let Some(link) = self.observers.link.get() else { return };
        self.handle_sender(sender);
        link.receive(sender.0, app, message);
    }
}

impl LinkCarrier for Cluster {
    fn join(&self, apps: &[Arc<str>], sink: Arc<dyn LinkNodeSink>) {
        // A second call would be a bug of the node's start.
        assert!(
            self.observers.link.set(sink).is_ok() && self.observers.applications.set(apps.into()).is_ok()
        );
        for app in apps {
            self.engine.set_interest(Channel::Application(app.clone()), true);
        }
    }

    fn carry(&self, app: &Arc<str>, node: Option<u64>, message: Bytes) -> Result<bool, Busy> {
        let channel = match node {
            Some(node) => Channel::Node(NodeId(node)),
            None => Channel::Application(app.clone()),
        };
        match self.send(channel, &Frame::Application { app: app.clone(), message }) {
            Ok(()) => Ok(true),
            Err(EngineError::Full) => Err(Busy),
            Err(_) => Ok(false),
        }
    }

    fn delay_max(&self) -> Duration {
        self.engine.delay_max()
    }

    fn list_links(&self, done: Done<LinkList>) {
        self.survey(None, Question::Links, Answered::Links(self.own_links()), Finish::Links(done));
    }
}
