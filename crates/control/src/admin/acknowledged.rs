//! `POST /api/v1/emit` with `ack`: an event that Socket.IO clients acknowledge, and the acknowledgements that arrive in time.
//!
//! Acknowledgements arrive on the threads of the cores. [`Gathered`] takes them until it is full; those beyond its bounds count as
//! missing. It ends with the request, although the cores keep its receiver until the timeout.

use super::publish::ask;
use super::{Refusal, State, json, reason};
use axum::body::Body;
use axum::http::{Response, StatusCode};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::Data;
use stentor_ports::{Acknowledged, Charge, Class, Command, Concerned, Ledger};
use tokio::sync::Notify;

fn bad(message: String) -> Refusal {
    Refusal::new(reason::COMMAND, message)
}

/// Longest time that a request waits for acknowledgements.
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Approximate size of an acknowledgement besides its text, in bytes.
const ACKNOWLEDGEMENT_BYTES: usize = 64;

/// The field `ack` of the request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ack<'a> {
    #[serde(borrow)]
    timeout: Cow<'a, str>,
}

impl Ack<'_> {
    /// Returns the time to wait.
    ///
    /// # Errors
    /// The text isn't a number with the unit `ms` or `s`, or the time is zero or longer than [`TIMEOUT_MAX`].
    fn timeout(&self) -> Result<Duration, Refusal> {
        let parsed = match self.timeout.strip_suffix("ms") {
            Some(number) => number.trim().parse().ok().map(Duration::from_millis),
            None => {
                let number = self.timeout.strip_suffix('s').and_then(|number| number.trim().parse().ok());
                number.map(Duration::from_secs)
            }
        };
        parsed.filter(|timeout| !timeout.is_zero() && *timeout <= TIMEOUT_MAX).ok_or_else(|| {
            bad(format!(
                "\"ack\" needs a \"timeout\" of at most {} s, such as \"500ms\" or \"2s\"",
                TIMEOUT_MAX.as_secs()
            ))
        })
    }
}

#[derive(Serialize)]
struct Answer {
    sessions: usize,
    /// The arguments of each acknowledgement.
    acknowledgements: Vec<Box<RawValue>>,
    missing: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<String>,
}

/// The acknowledgements so far.
struct Gathered {
    count_max: usize,
    bytes_max: usize,
    state: Mutex<Received>,
    arrived: Notify,
}

struct Received {
    texts: Vec<Box<RawValue>>,
    /// Number of acknowledgements, those that were too many included.
    count: usize,
    charge: Charge,
}

impl Gathered {
    fn new(count_max: usize, bytes_max: usize, ledger: &Arc<Ledger>) -> Self {
        let charge = Charge::new(ledger.clone(), Class::Bodies);
        let state = Mutex::new(Received { texts: Vec::new(), count: 0, charge });
        Self { count_max, bytes_max, state, arrived: Notify::new() }
    }

    /// Takes the arguments of an acknowledgement: JSON texts joined by commas.
    fn add(&self, data: &Data) {
        let Data::Arguments { json, .. } = data else { return };
        let mut received = self.state.lock();
        received.count += 1;
        let bytes = json.len() + ACKNOWLEDGEMENT_BYTES;
        if received.texts.len() < self.count_max && received.charge.bytes() + bytes <= self.bytes_max {
            let text = format!("[{}]", String::from_utf8_lossy(json));
            if let Ok(text) = RawValue::from_string(text) {
                received.charge.add(bytes);
                received.texts.push(text);
            }
        }
        self.arrived.notify_one();
    }

    /// Passes acknowledgements on for as long as the request waits.
    fn receiver(self: &Arc<Self>) -> Acknowledged {
        let gathered = Arc::downgrade(self);
        Arc::new(move |data| {
            if let Some(gathered) = gathered.upgrade() {
                gathered.add(&data);
            }
        })
    }

    /// Waits until that many acknowledgements have arrived.
    async fn wait_for(&self, count: usize) {
        while self.state.lock().count < count {
            self.arrived.notified().await;
        }
    }
}

/// Sends an event by `submit`, waits for the acknowledgements, and responds with them.
///
/// # Errors
/// The event has no name, the timeout is invalid, or the data plane doesn't take the command.
pub(super) async fn emit(
    state: &State,
    submit: impl Fn(Command),
    (event, data): (Option<Arc<str>>, Data),
    ack: &Ack<'_>,
) -> Result<Response<Body>, Refusal> {
    let timeout = ack.timeout()?;
    let event =
        event.ok_or_else(|| bad("an event with \"ack\" needs a name: \"event\" is missing".into()))?;
    // One value is a list of one argument.
    let data = match data {
        Data::Json(json) => Data::Arguments { json, attachments: [].into() },
        data => data,
    };
    let options = state.options.load();
    let gathered = Arc::new(Gathered::new(
        options.acknowledgements_max,
        options.acknowledgements_bytes_max,
        &state.ledger,
    ));
    let answered = gathered.receiver();
    let Concerned { sessions, missing_nodes, .. } = ask(state, |done| {
        let (event, data, answered) = (event.clone(), data.clone(), answered.clone());
        let call = Command::Call { event, data, timeout, answered, done };
        submit(call);
    })
    .await?;
    // Without all of them, those that have arrived are the answer.
    let _ = tokio::time::timeout(timeout, gathered.wait_for(sessions)).await;
    let acknowledgements = std::mem::take(&mut gathered.state.lock().texts);
    let missing = sessions.saturating_sub(acknowledgements.len());
    Ok(json(StatusCode::OK, &Answer { sessions, acknowledgements, missing, missing_nodes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_a_unit_and_a_bound() {
        let parsed = |text: &'static str| Ack { timeout: text.into() }.timeout().ok();
        assert_eq!(parsed("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parsed("60s"), Some(TIMEOUT_MAX));
        for text in ["", "2", "2m", "0s", "61s", "-1s", "1.5s", "s", "99999999999999999999s"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn acknowledgements_beyond_the_bounds_count_but_are_not_kept() {
        let ledger = Arc::new(Ledger::new(usize::MAX));
        let data = |json: &'static str| Data::Arguments { json: json.into(), attachments: [].into() };
        let gathered = Gathered::new(2, 1_000, &ledger);
        for json in ["", "1,\"two\"", "3"] {
            gathered.add(&data(json));
        }
        let received = gathered.state.lock();
        let texts: Vec<_> = received.texts.iter().map(|text| text.get()).collect();
        assert_eq!((texts, received.count), (vec!["[]", "[1,\"two\"]"], 3));
        let gathered = Gathered::new(9, ACKNOWLEDGEMENT_BYTES + 1, &ledger);
        gathered.add(&data("10"));
        gathered.add(&data("1"));
        let received = gathered.state.lock();
        assert_eq!((received.texts.len(), received.count, received.charge.bytes()), (1, 2, 65));
    }

    #[test]
    fn acknowledgements_are_charged_until_the_request_ends() {
        let ledger = Arc::new(Ledger::new(usize::MAX));
        let data = Data::Arguments { json: "1".into(), attachments: [].into() };
        let gathered = Arc::new(Gathered::new(2, 1_000, &ledger));
        let answered = gathered.receiver();
        answered(data.clone());
        assert_eq!(ledger.bytes(), ACKNOWLEDGEMENT_BYTES + 1);
        drop(gathered);
        answered(data);
        assert_eq!(ledger.bytes(), 0);
    }
}
