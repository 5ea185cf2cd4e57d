//! Clients of all protocols, each with its replica of some documents: their requests, and the interpretation of received
//! messages.
//!
//! Received messages of all protocols are converted to the form of `stentor.v1`.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use stentor_wire::http1::{BodyDecoder, BodyKind};
use stentor_wire::sockjs::{self, ServerFrame};
use stentor_wire::sse::{self, Decoded, Positions};

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Manner {
    WebSocket,
    SocketIo,
    SockJs,
    Primus,
    EngineIo,
    /// Raw mode over WebSocket.
    Raw,
    /// Server-Sent Events.
    Events,
}

pub(crate) const MANNERS: [Manner; 7] = [
    Manner::WebSocket,
    Manner::SocketIo,
    Manner::SockJs,
    Manner::Primus,
    Manner::EngineIo,
    Manner::Raw,
    Manner::Events,
];

/// A position in a feed: epoch and offset.
pub(crate) type Place = (u64, u64);

/// A client's replica of a feed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    pub(crate) place: Option<Place>,
    pub(crate) document: Value,
    /// The version's number in the model.
    pub(crate) version: Option<usize>,
    /// The position with which the client reconnected, until a message answers it.
    pub(crate) asked: Option<Place>,
    /// The position with which the client had reconnected, if the last message was a snapshot that answered it.
    pub(crate) answered: Option<Place>,
    /// `true` if the client must be sent a reason when it receives a document from another position.
    pub(crate) is_promised: bool,
    /// `true` if deltas may arrive: by the options that apply, and by the requested ones.
    pub(crate) deltas: bool,
    pub(crate) deltas_next: bool,
    /// The open request.
    question: Option<Question>,
}

#[derive(Clone, Debug)]
struct Question {
    id: u64,
    place: Option<Place>,
    /// `true` if the client was subscribed before. A position then only means that its replica is complete.
    again: bool,
}

impl Replica {
    /// `true` if it is unknown which options apply.
    pub(crate) fn is_open(&self) -> bool {
        self.question.is_some()
    }
}

/// A client. Its replicas outlive its connections.
pub(crate) struct Client {
    pub(crate) manner: Manner,
    pub(crate) replicas: BTreeMap<&'static str, Replica>,
    /// Further options of its requests, as a JSON object.
    pub(crate) options: Value,
    /// The number of the client's connection.
    pub(crate) link: Option<usize>,
    /// `true` after `welcome`.
    pub(crate) ready: bool,
    last_event_id: String,
    /// Decoders of its SSE stream.
    events: (BodyDecoder, sse::Decoder),
    next_id: u64,
}

impl Client {
    pub(crate) fn new(manner: Manner, feeds: &[&'static str], options: Value) -> Self {
        let mut client = Self {
            manner,
            replicas: feeds.iter().map(|feed| (*feed, Replica::default())).collect(),
            options: Value::Null,
            link: None,
            ready: false,
            last_event_id: String::new(),
            events: decoders(),
            next_id: 1,
        };
        client.set_options(options);
        client
    }

    /// Sets the options for later requests.
    pub(crate) fn set_options(&mut self, options: Value) {
        let by_default = !matches!(self.manner, Manner::SocketIo | Manner::Events | Manner::Raw);
        let deltas = options["delta"].as_bool().unwrap_or(by_default) && self.manner != Manner::Raw;
        for replica in self.replicas.values_mut() {
            replica.deltas_next = deltas && options["policy"] != "drop_oldest";
        }
        self.options = options;
    }

    /// Handles the loss of the connection.
    pub(crate) fn lost(&mut self) {
        self.link = None;
        for replica in self.replicas.values_mut() {
            (replica.asked, replica.answered, replica.question) = (None, None, None);
        }
    }

    /// Handles that the request with this number was accepted.
    pub(crate) fn done(&mut self, id: u64) {
        let open = |replica: &&mut Replica| replica.question.as_ref().is_some_and(|open| open.id == id);
        let Some(replica) = self.replicas.values_mut().find(open) else { return };
        let Some(Question { place, again, .. }) = replica.question.take() else { return };
        replica.deltas = replica.deltas_next;
        if !again {
            (replica.asked, replica.is_promised) = (place, true);
        } else if place.is_none() {
            // The client's earlier message may still be in transit between two cores.
            replica.is_promised = false;
        }
    }

    /// Whether the client can change its subscriptions while it is connected.
    pub(crate) fn can_ask(&self) -> bool {
        self.ready && self.replicas.values().all(|replica| !replica.is_open())
    }

    /// The path and query of its first request.
    pub(crate) fn target(&self) -> String {
        let mut query = Vec::new();
        for (name, value) in self.options.as_object().unwrap() {
            query.push(format!("{name}={}", value.to_string().trim_matches('"')));
        }
        match self.manner {
            Manner::WebSocket => "/ws".into(),
            Manner::SocketIo => "/socket.io/?EIO=4&transport=websocket".into(),
            Manner::EngineIo => "/engine.io/?EIO=4&transport=websocket".into(),
            Manner::SockJs => "/sockjs/000/abc/websocket".into(),
            Manner::Primus => "/primus".into(),
            Manner::Raw => {
                let feed = self.replicas.keys().next().unwrap();
                format!("/ws/{feed}?{}", query.join("&"))
            }
            Manner::Events => {
                query.extend(self.replicas.keys().map(|feed| format!("feed={feed}")));
                // A client that can't send the header uses the query.
                if self.last_event_id_header().is_none() {
                    let id = self.last_event_id.replace('!', "%21").replace(';', "%3B");
                    query.push(format!("lastEventId={id}"));
                }
                format!("/sse?{}", query.join("&"))
            }
        }
    }

    /// `Last-Event-ID`, if the client sends it as a header and not in its URL.
    pub(crate) fn last_event_id_header(&self) -> Option<&str> {
        (!self.last_event_id.len().is_multiple_of(2)).then_some(&*self.last_event_id)
    }

    /// Handles the opening of a WebSocket or SSE stream.
    pub(crate) fn opened(&mut self) {
        self.events = decoders();
        for replica in self.replicas.values_mut() {
            replica.deltas = replica.deltas_next;
            replica.asked = replica.place.filter(|_| self.manner == Manner::Events);
            replica.is_promised = true;
        }
    }

    /// Subscribes to all of its feeds, from its positions or from the beginning.
    pub(crate) fn ask(&mut self, resume: bool) -> Vec<String> {
        let again = std::mem::replace(&mut self.ready, true);
        let mut messages = Vec::new();
        for (feed, replica) in &mut self.replicas {
            let mut options = self.options.clone();
            let place = replica.place.filter(|_| resume);
            if let Some((epoch, offset)) = place {
                options["epoch"] = epoch.into();
                options["offset"] = offset.into();
            }
            self.next_id += 1;
            replica.question = Some(Question { id: self.next_id, place, again });
            messages.push(match self.manner {
                Manner::SocketIo => format!(r#"42{}["subscribe","{feed}",{options}]"#, self.next_id),
                manner => {
                    options["type"] = "subscribe".into();
                    options["feed"] = (*feed).into();
                    options["id"] = self.next_id.into();
                    let text = options.to_string();
                    match manner {
                        Manner::EngineIo => format!("4{text}"),
                        Manner::SockJs => json!([text]).to_string(),
                        _ => text,
                    }
                }
            });
        }
        messages
    }

    /// Handles a message on its WebSocket. Returns immediate answers and the received messages.
    pub(crate) fn hear(&mut self, text: &str) -> (Vec<String>, Vec<Value>) {
        let plain = |text: &str| vec![serde_json::from_str::<Value>(text).unwrap()];
        match self.manner {
            Manner::Raw => {
                let document: Value = serde_json::from_str(text).unwrap();
                let feed = self.replicas.keys().next().unwrap();
                (vec![], vec![json!({"type": "snapshot", "feed": feed, "data": document})])
            }
            Manner::SocketIo => match text.as_bytes() {
                b"2" => (vec!["3".into()], vec![]),
                [b'0', ..] => (vec!["40".into()], vec![]),
                [b'4', b'0', ..] => (vec![], vec![json!({"type": "welcome"})]),
                [b'4', b'3', ..] => {
                    let id = text[2..].strip_suffix(r#"[{"ok":true}]"#).expect(text).parse::<u64>().unwrap();
                    (vec![], vec![json!({"type": "ok", "id": id})])
                }
                _ => {
                    let mut event: Value = serde_json::from_str(text.strip_prefix("42").unwrap()).unwrap();
                    assert_eq!(event[0], "feed");
                    (vec![], vec![event[1].take()])
                }
            },
            Manner::EngineIo => match text.as_bytes() {
                b"2" => (vec!["3".into()], vec![]),
                [b'4', ..] => (vec![], plain(&text[1..])),
                _ => (vec![], vec![]),
            },
            Manner::SockJs => match ServerFrame::parse(text, &sockjs::Limits::default()).unwrap() {
                ServerFrame::Messages(messages) => {
                    (vec![], messages.flat_map(|message| plain(&message)).collect())
                }
                _ => (vec![], vec![]),
            },
            Manner::Primus if text.starts_with("\"primus::ping::") => {
                (vec![text.replace("ping", "pong")], vec![])
            }
            Manner::Primus if text.starts_with('"') => (vec![], vec![]),
            Manner::Primus | Manner::WebSocket => (vec![], plain(text)),
            Manner::Events => unreachable!("it has no WebSocket"),
        }
    }

    /// Returns the messages in a piece of the SSE stream.
    pub(crate) fn read_events(&mut self, mut piece: &[u8]) -> Vec<Value> {
        let (body, events) = &mut self.events;
        let mut told = Vec::new();
        while !piece.is_empty() {
            let decoded = body.decode(piece).unwrap();
            piece = &piece[decoded.consumed..];
            let mut data = decoded.data;
            while !data.is_empty() {
                let received = events.receive(data).unwrap();
                data = &data[received.consumed..];
                if let Some(Decoded::Event { event, data, id }) = received.decoded {
                    let place = Positions::parse(id).iter().next();
                    let value: Value = serde_json::from_str(data).unwrap();
                    self.last_event_id = id.to_owned();
                    told.push(match (event, place) {
                        ("snapshot", Some(place)) => json!({
                            "type": "snapshot", "feed": place.key, "epoch": place.epoch, "offset": place.offset,
                            "data": value,
                        }),
                        ("delta", Some(place)) => {
                            assert_eq!((&value["type"], &value["feed"]), (&json!("delta"), &json!(place.key)));
                            let said = (value["epoch"].as_u64(), value["offset"].as_u64());
                            assert_eq!(said, (Some(place.epoch), Some(place.offset)));
                            value
                        }
                        (other, _) => {
                            let mut value = value;
                            value["type"] = other.into();
                            value
                        }
                    });
                }
            }
        }
        told
    }
}

fn decoders() -> (BodyDecoder, sse::Decoder) {
    (BodyDecoder::new(BodyKind::Chunked), sse::Decoder::new(1 << 20))
}
