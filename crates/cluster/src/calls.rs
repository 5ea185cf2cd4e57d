//! Events that clients of all nodes acknowledge ([`Command::Call`](stentor_ports::Command::Call)).
//!
//! ```text
//!  this node ── Task::Call ──► each other node ── event ──► its clients
//!      ▲                            │
//!      └──── Acknowledged ◄─────────┘  one frame per 20 ms or 64 KiB
//! ```
//!
//! Lost frames aren't repeated: their acknowledgements are missing in the result. A call ends with its caller's [`Acknowledged`], or after its
//! timeout.

use crate::frame::Frame;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use stentor_hub::Data;
use stentor_ports::{Acknowledged, Charge, Class, Ledger};
use tokio::runtime::Handle;

/// Maximum number of calls that wait for acknowledgements of other nodes.
const CALLS_MAX: usize = 1_024;
/// Time for which a node collects acknowledgements.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// Size of acknowledgements that are sent at once.
const BATCH_BYTES_MAX: usize = 64 << 10;
/// Time after the end of a call for which its acknowledgements are still passed on.
const GRACE: Duration = Duration::from_secs(3);
/// Size of an acknowledgement besides its text.
const ACKNOWLEDGEMENT_BYTES: usize = 64;

/// The receiver of a call's acknowledgements, for as long as its caller keeps it.
type Caller = Weak<dyn Fn(Data) + Send + Sync>;

/// Calls of this node that wait for acknowledgements of other nodes.
#[derive(Default)]
pub(crate) struct Calls(HashMap<u64, (Instant, Caller)>);

impl Calls {
    /// Begins a call. Returns its id, or `None` if too many calls wait.
    pub(crate) fn begin(&mut self, now: Instant, timeout: Duration, answered: &Acknowledged) -> Option<u64> {
        self.expire(now);
        (self.0.len() < CALLS_MAX).then_some(())?;
        let id = fastrand::u64(..);
        self.0.insert(id, (now + timeout + GRACE, Arc::downgrade(answered)));
        Some(id)
    }

    /// Removes the calls that have timed out, or whose callers have enough acknowledgements.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.0.retain(|_, (until, answered)| now < *until && answered.strong_count() > 0);
    }

    /// The receiver of a call's acknowledgements.
    pub(crate) fn receiver(&self, id: u64) -> Option<Acknowledged> {
        self.0.get(&id)?.1.upgrade()
    }
}

/// A receiver for sessions of this node, which may keep it until the call's timeout. It ends with the caller's receiver.
pub(crate) fn forwarder(answered: &Acknowledged) -> Acknowledged {
    let answered = Arc::downgrade(answered);
    Arc::new(move |data| {
        if let Some(answered) = answered.upgrade() {
            answered(data);
        }
    })
}

/// Collects the acknowledgements of this node's clients for another node.
struct Batch<S> {
    /// Sends a frame to the other node.
    send: S,
    call: u64,
    waiting: Mutex<(Vec<Bytes>, Charge)>,
}

impl<S: Fn(&Frame)> Batch<S> {
    fn flush(&self) {
        let texts = {
            let (texts, charge) = &mut *self.waiting.lock();
            charge.set(0);
            std::mem::take(texts)
        };
        if !texts.is_empty() {
            (self.send)(&Frame::Acknowledged { call: self.call, texts });
        }
    }

    /// Adds an acknowledgement. Returns `true` for the first one of a batch, and `None` if the batch is full.
    fn add(&self, text: Bytes) -> Option<bool> {
        let (texts, charge) = &mut *self.waiting.lock();
        charge.add(text.len() + ACKNOWLEDGEMENT_BYTES);
        texts.push(text);
        (charge.bytes() < BATCH_BYTES_MAX).then_some(texts.len() == 1)
    }
}

/// Returns the receiver of the acknowledgements of this node's clients for a call of another node. `send` sends that node a frame.
/// Must be called within the cluster's runtime.
pub(crate) fn receiver_for(
    send: impl Fn(&Frame) + Send + Sync + 'static,
    call: u64,
    ledger: &Arc<Ledger>,
) -> Acknowledged {
    let waiting = Mutex::new((Vec::new(), Charge::new(ledger.clone(), Class::Cluster)));
    let batch = Arc::new(Batch { send, call, waiting });
    let runtime = Handle::current();
    Arc::new(move |data| {
        let Data::Arguments { json, .. } = data else { return };
        match batch.add(json) {
            Some(true) => {
                let batch = batch.clone();
                runtime.spawn(async move {
                    tokio::time::sleep(BATCH_DELAY).await;
                    batch.flush();
                });
            }
            Some(false) => {}
            None => batch.flush(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_with_its_caller_or_its_timeout_and_calls_are_bounded() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut calls = Calls::default();
        let [answered, other] = [(); 2].map(|()| -> Acknowledged { Arc::new(|_| {}) });
        let first = calls.begin(now, second, &other).unwrap();
        let ids: Vec<_> = (1..CALLS_MAX).filter_map(|_| calls.begin(now, second, &answered)).collect();
        assert_eq!(ids.len(), CALLS_MAX - 1);
        assert!(calls.receiver(first).is_some() && calls.receiver(ids[0]).is_some());
        assert_eq!(calls.begin(now + second, second, &answered), None);
        drop(other);
        assert!(calls.receiver(first).is_none());
        assert!(calls.begin(now + second, second, &answered).is_some());
        assert_eq!(calls.begin(now + second, second, &answered), None);
        let later = now + second + GRACE;
        assert!(calls.begin(later, second, &answered).is_some());
        assert!(calls.receiver(ids[0]).is_none());
    }
}
