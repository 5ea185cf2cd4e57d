//! Connections that move between the cores of a node, at a request boundary with nothing in flight.

use super::mail::{Arrival, CoreMessage};
use super::{Connections, Incoming, Mail, Protocols, input, migration};
use stentor_driver::Driver;
use stentor_hub::CoreId;

/// Moves a connection to another core. If that isn't possible, the connection begins anew on this core and stays here.
pub(super) fn hand_over(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    mut incoming: Incoming,
    core: CoreId,
) {
    let migrates = incoming.moved.buffered.as_mut().and_then(|buffered| buffered.migrates.take());
    let detached = if core == protocols.ex.core() { None } else { conns.driver.detach(incoming.conn) };
    let Some(detached) = detached else {
        migrates.into_iter().for_each(|id| protocols.stay(id));
        return input::begin(conns, protocols, mail, Incoming { stays: true, ..incoming });
    };
    let Incoming { peer, moved, slot, begins_tls, .. } = incoming;
    let arrival = Arrival { detached, peer, moved, slot, begins_tls };
    if let Some(id) = migrates
        && !migration::migrate(conns, protocols, mail, id, core)
    {
        protocols.stay(id);
        return arrived(conns, protocols, mail, arrival, true);
    }
    mail.post(core, CoreMessage::Connection(Box::new(arrival)));
    protocols.ex.metrics().handed_over.add(1);
}

/// Receives a connection that another core has sent, or has sent back.
pub(super) fn arrived(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    arrival: Arrival,
    stays: bool,
) {
    let Arrival { detached, peer, moved, mut slot, begins_tls } = arrival;
    match conns.driver.attach(detached) {
        Ok(conn) => {
            let incoming = Incoming { begins_tls, stays, ..Incoming::new(conn, peer, moved, slot) };
            input::begin(conns, protocols, mail, incoming);
        }
        Err(error) => {
            protocols.ex.release_connection(&mut slot);
            tracing::warn!(%error, %peer, "a connection was lost between two cores");
        }
    }
}
