//! How a namespace's messages are carried: from channel and payload to their meaning, and back.

use super::inbox::{Arrived, Kind};
use super::namespace::Namespace;
use super::refused::Refused;
use crate::socketio::{Broadcast, Event, Flags, Request, RequestBody, Response, Selection, WireError};
use bytes::Bytes;

/// What another server says.
#[derive(Debug)]
pub(super) enum Incoming {
    /// An event to sessions.
    Broadcast {
        selection: Selection,
        volatile: bool,
        event: Event,
    },
    Request(Request),
    Response(Response),
}

/// A channel, and what is published there.
pub(super) type Published = (String, Bytes);

impl Namespace {
    /// What has arrived. `None`: this node's own.
    pub(super) fn decode(&self, arrived: &Arrived) -> Result<Option<Incoming>, Refused> {
        match arrived.kind {
            Kind::Broadcast(_) => {
                let Broadcast { uid, namespace, selection, flags, event } =
                    Broadcast::decode(&arrived.payload)?;
                if namespace != self.name {
                    return Err(Refused::Namespace);
                }
                let is_own = uid == self.uid;
                Ok((!is_own).then_some(Incoming::Broadcast { selection, volatile: flags.volatile, event }))
            }
            Kind::Request => {
                let request = Request::decode(&arrived.payload)?;
                if let RequestBody::Broadcast { namespace, .. } = &request.body
                    && *namespace != self.name
                {
                    return Err(Refused::Namespace);
                }
                let is_own = request.uid.as_ref() == Some(&self.uid);
                Ok((!is_own).then_some(Incoming::Request(request)))
            }
            Kind::Response => Ok(Some(Incoming::Response(Response::decode(&arrived.payload)?))),
        }
    }

    /// An event to sessions.
    pub(super) fn broadcast(
        &self,
        selection: Selection,
        volatile: bool,
        event: Event,
    ) -> Result<Published, WireError> {
        let channel = self.channels.broadcast(&selection.rooms);
        let flags = Flags { volatile, ..Flags::default() };
        let (uid, namespace) = (self.uid.clone(), self.name.clone());
        Ok((channel, Broadcast { uid, namespace, selection, flags, event }.encode()?))
    }

    /// A request, of this node.
    pub(super) fn request(&self, id: Option<&str>, body: RequestBody) -> Result<Published, WireError> {
        let request = Request { uid: Some(self.uid.clone()), id: id.map(Into::into), body };
        Ok((self.channels.request().into(), request.encode()?))
    }

    /// The answer to a request.
    pub(super) fn response(&self, response: &Response) -> Result<Published, WireError> {
        Ok((self.channels.response().into(), response.encode()?))
    }
}
