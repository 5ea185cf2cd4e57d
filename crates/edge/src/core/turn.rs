//! Events of a turn, and the work that follows from them.
//!
//! ```text
//!  events ──► handle ──► answers leave at once, effects are queued
//!                           │
//!  mail, commands ──────────┴──► pump: notices, effects, actions, then deliveries, then connections that wait
//! ```

use super::{Connections, Mail, Protocols, Work, actions, clients, end, send, tasks, work};
use stentor_driver::Driver;
use stentor_session::identity::Owner;

/// Returns `true` if there is work that no event announces. Connections that the last turn left may continue.
pub(super) fn is_busy(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &Mail,
    work: &Work,
) -> bool {
    if conns.has_left() {
        conns.resume_left(&protocols.ws);
    }
    work.has_mail && (!mail.mailboxes.is_empty() || tasks::has_commands(protocols, work))
        || !conns.revisit.is_empty()
        || conns.has_left()
        || protocols.ex.has_unverified()
}

/// Carries out the effects of handlers, and sends pending deliveries and messages to other cores. Returns `true` if there were
/// any.
// A call takes 20 of the 1,283 instructions of an echo.
#[inline(always)]
pub(super) fn pump(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
) -> bool {
    let mut has_changed = false;
    if !is_quiet(conns, protocols) {
        has_changed = true;
        carry_out_all(conns, protocols, mail, work);
    }
    protocols.ex.budget.take_published();
    if mail.has_unsent(&protocols.ex) {
        has_changed = true;
        mail.send(&mut protocols.ex);
    }
    if !conns.waiting_for_cores.is_empty() {
        conns.resume_publishers(&mut protocols.ex);
    }
    has_changed
}

/// Returns `true` if there are no effects, deliveries and messages, as in most turns that only answer.
#[inline]
fn is_quiet(conns: &Connections<impl Driver>, protocols: &Protocols) -> bool {
    (!protocols.ex.hub.has_changed() || protocols.ex.hub.is_quiet())
        && !protocols.ex.has_effects()
        && protocols.ex.has_no_decisions()
        && conns.revisit.is_empty()
        && conns.left.is_empty()
}

// This function isn't inlined, because turns that only answer don't call it.
#[inline(never)]
fn carry_out_all(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
) {
    loop {
        mail.send_new(&mut protocols.ex);
        if let Some(notice) = protocols.ex.poll_notice() {
            actions::handle_notice(conns, protocols, &notice);
            // Deliveries after a gap continue when the next notice is polled.
            actions::carry_out_effects(conns, protocols, mail);
        } else if let Some((session, _, why)) = protocols.ex.hub.poll_terminating() {
            end::disconnect(conns, protocols, session, why);
        } else if let Some(room) = protocols.ex.hub.poll_prepared() {
            tasks::handle_prepared(conns, protocols, mail, work, &room);
        } else if let Some(conn) = protocols.ex.poll_decided() {
            conns.resume_decided(protocols, conn);
        } else if protocols.ex.carry_out_decision() {
            // The decision's effects are carried out next.
        } else if protocols.ex.has_effects() {
            actions::carry_out_effects(conns, protocols, mail);
        } else if let Some((_, tag)) = protocols.ex.hub.poll_ready() {
            work.cpu.pause();
            let mut next = Some(tag);
            while let Some(tag) = next {
                match protocols.ex.owner_of_tag(tag) {
                    Some(Owner::Connection(index, _)) => send::flush(conns, protocols, index),
                    Some(Owner::Client(id)) => clients::flush_client(conns, protocols, id),
                    Some(Owner::Socket(_)) | None => {}
                }
                next = protocols.ex.hub.poll_ready().map(|(_, tag)| tag);
            }
            work.cpu.resume();
        } else if protocols.ex.budget.may_publish_after(work.revisited_bytes) {
            // Input comes last, because its messages may be published. With io_uring, sends reach the kernel when the
            // next turn begins. Until then, no more is published than outboxes hold.
            protocols.ex.budget.take_published();
            if !work::resume_revisited(conns, protocols, mail)
                && !work::resume_one_left(conns, protocols, mail)
                && !work::begin_verification(conns, protocols)
            {
                break;
            }
            work.revisited_bytes += protocols.ex.budget.take_published();
        } else {
            break;
        }
    }
    protocols.report_interest();
}

/// Sends pending deliveries before there are so many that sessions would count as slow consumers. Returns `true` if any were
/// sent.
#[inline]
pub(super) fn pump_if_much_was_published(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
) -> bool {
    protocols.ex.budget.published_much() && pump_now(conns, protocols, mail, work)
}

#[cold]
fn pump_now(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
) -> bool {
    pump(conns, protocols, mail, work)
}
