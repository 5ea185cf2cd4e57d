//! Profile `socketio-client`.

use crate::engineio::headers_json;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stentor_edge::{
    Ack, Admission, Application, Arguments, Connect, Context, Event, NamespaceRequest, RequestId, Sid,
};
use stentor_hub::SessionId;
use stentor_wire::http1::{Request, query_pairs};
use stentor_wire::socketio::renumber_placeholders;

const NAMESPACES: [&str; 7] = ["/", "/foo", "/timeout_socket", "/valid", "/asd", "/abc", "/no"];
/// Time that a handshake waits for its admission.
const ADMISSION_DELAY: Duration = Duration::from_millis(10);
const PLACEHOLDER: &str = r#"{"_placeholder":true,"num":0}"#;
const UTF8: [&str; 5] = ["てすと", "Я Б Г Д Ж Й", "Ä ä Ü ü ß", "utf8 — string", "utf8 — string"];

#[derive(Default)]
pub(crate) struct Client {
    /// Requests that wait, by the token of their timer.
    waiting: HashMap<u64, RequestId>,
    timers: u64,
    /// Properties of clients' requests.
    handshakes: HashMap<Sid, Value>,
    sockets: HashMap<SessionId, Known>,
}

struct Known {
    id: String,
    namespace: String,
    handshake: Value,
}

fn bytes_of(bytes: &'static [u8]) -> [Bytes; 1] {
    [Bytes::from_static(bytes)]
}

fn object(query: &str) -> Map<String, Value> {
    query_pairs(query).map(|(name, value)| (name.into_owned(), value.into_owned().into())).collect()
}

impl Application for Client {
    fn connect(&mut self, ctx: &mut Context<'_>, request: &Request<'_>) -> Connect {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let headers: Value = serde_json::from_str(&headers_json(request)).unwrap_or_default();
        let handshake = json!({
            "headers": headers,
            "time": "now",
            "address": "127.0.0.1",
            "xdomain": request.header("origin").is_some(),
            "secure": false,
            "issued": now,
            "url": request.target(),
            "query": object(request.query()),
        });
        let (Some(id), Some(client)) = (ctx.request_id(), ctx.client()) else { return Connect::Accept };
        self.handshakes.insert(client, handshake);
        self.timers += 1;
        self.waiting.insert(self.timers, id);
        let token = self.timers;
        ctx.after(ADMISSION_DELAY, token);
        Connect::Pending
    }

    fn timer(&mut self, ctx: &mut Context<'_>, token: u64) {
        if let Some(request) = self.waiting.remove(&token) {
            ctx.admit(request, Connect::Accept);
        }
    }

    fn client_disconnected(&mut self, _ctx: &mut Context<'_>, client: Sid) {
        self.handshakes.remove(&client);
    }

    fn message(&mut self, _ctx: &mut Context<'_>, _session: SessionId, _message: stentor_edge::Message<'_>) {}

    fn connect_namespace(&mut self, _ctx: &mut Context<'_>, request: &NamespaceRequest<'_>) -> Admission {
        let fails = self
            .handshakes
            .get(&request.client)
            .and_then(|handshake| handshake["query"].as_object())
            .is_some_and(|query| query.contains_key("fail"));
        let refuse = |message: &str| Admission::Refuse { message: message.to_owned(), data: None };
        match request.namespace {
            "/" if fails => refuse("Auth failed (main namespace)"),
            "/no" => refuse("Auth failed (custom namespace)"),
            namespace if NAMESPACES.contains(&namespace) => Admission::Accept,
            _ => Admission::Unknown,
        }
    }

    fn joined(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        request: &NamespaceRequest<'_>,
        id: &str,
    ) {
        let mut handshake = self.handshakes.get(&request.client).cloned().unwrap_or_default();
        if let Some(query) = handshake["query"].as_object_mut() {
            query.extend(object(request.query));
        }
        handshake["auth"] = serde_json::from_str(request.auth).unwrap_or_default();
        if request.namespace == "/abc" {
            let json = handshake.to_string();
            ctx.emit(session, "handshake", Arguments { json: &json, attachments: &[] });
        }
        let known = Known { id: id.to_owned(), namespace: request.namespace.to_owned(), handshake };
        self.sockets.insert(session, known);
    }

    fn closed(&mut self, _ctx: &mut Context<'_>, session: SessionId) {
        self.sockets.remove(&session);
    }

    fn event(&mut self, ctx: &mut Context<'_>, session: SessionId, event: &Event<'_>) {
        let Some(known) = self.sockets.get(&session) else { return };
        let text = |json| Arguments { json, attachments: &[] };
        let has_binary = !event.arguments.attachments.is_empty();
        let answer = |ctx: &mut Context<'_>, ack: Option<Ack>, json: &str| {
            if let Some(ack) = ack {
                ctx.ack(session, ack, Arguments { json, attachments: &[] });
            }
        };
        match (&*known.namespace, event.name) {
            ("/" | "/foo", "getId") => answer(ctx, event.ack, &Value::from(&*known.id).to_string()),
            ("/", "hi") => ctx.emit(session, "hi", text("")),
            ("/", "echo") => {
                if let Some(ack) = event.ack {
                    let (json, attachments) = first(event.arguments);
                    ctx.ack(session, ack, Arguments { json: &json, attachments: &attachments });
                }
            }
            ("/", "getHandshake") => answer(ctx, event.ack, &known.handshake.to_string()),
            ("/", "false") => ctx.emit(session, "false", text("false,false")),
            ("/", "ack") => ctx.emit_with_ack(session, "ack", text(""), Duration::from_secs(10), 0),
            ("/", "getAckDate") => answer(ctx, event.ack, &date()),
            ("/", "getDate") => ctx.emit(session, "takeDate", text(&date())),
            ("/", "getDateObj") => {
                ctx.emit(session, "takeDateObj", text(&format!("{{\"date\":{}}}", date())));
            }
            ("/", "getUtf8") => {
                for utf8 in UTF8 {
                    let json = Value::from(utf8).to_string();
                    ctx.emit(session, "takeUtf8", Arguments { json: &json, attachments: &[] });
                }
            }
            ("/", "doge") => {
                let attachments = &bytes_of(b"asdfasdf");
                ctx.emit(session, "doge", Arguments { json: PLACEHOLDER, attachments });
            }
            ("/", "getbin") => {
                let attachments = &bytes_of(b"asdfasdf");
                ctx.emit(session, "takebin", Arguments { json: PLACEHOLDER, attachments });
            }
            ("/", "buffa") if has_binary => ctx.emit(session, "buffack", text("")),
            ("/", "jsonbuff") if has_binary => ctx.emit(session, "jsonbuff-ack", text("")),
            ("/", "abuff2") => ctx.emit(session, "abuff2-ack", text("")),
            ("/", "blob") if has_binary => {
                ctx.emit(session, "back", text(""));
            }
            ("/", "jsonblob") if has_binary => ctx.emit(session, "jsonblob-ack", text("")),
            ("/", "blob3") if has_binary => ctx.emit(session, "blob3-ack", text("")),
            _ => {}
        }
    }

    fn acked(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        _token: u64,
        answer: Option<Arguments<'_>>,
    ) {
        let values: Vec<Value> = answer
            .iter()
            .flat_map(|answer| {
                answer.iter().filter_map(|json| serde_json::from_str(json).ok()).collect::<Vec<_>>()
            })
            .collect();
        if values == [json!(5), json!({"test": true})] {
            ctx.emit(session, "got it", Arguments::default());
        }
    }
}

/// The first argument with its own attachments.
fn first(arguments: Arguments<'_>) -> (String, Vec<Bytes>) {
    let json = arguments.iter().next().unwrap_or("null");
    let (mut renumbered, mut taken) = (Vec::new(), Vec::new());
    renumber_placeholders(&mut renumbered, json, &mut taken);
    let kept = taken.iter().filter_map(|number| arguments.attachments.get(*number).cloned()).collect();
    (String::from_utf8(renumbered).unwrap_or_default(), kept)
}

/// A date in JSON. Clients check only its format.
fn date() -> String {
    "\"2026-11-21T12:34:56.789Z\"".to_owned()
}
