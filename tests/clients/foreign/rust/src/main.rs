//! rust_socketio: see ../../README.md. One connection has one namespace; the library can't answer acknowledgements.
use base64::prelude::{Engine, BASE64_STANDARD};
use rust_socketio::client::Client;
use rust_socketio::{ClientBuilder, Error, Event, Payload, RawClient, TransportType};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::time::Duration;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const SEND_ATTEMPTS: usize = 500;
const SEND_DELAY: Duration = Duration::from_millis(20);

fn report(value: Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{value}");
    let _ = out.flush();
}

#[expect(deprecated, reason = "the library still has the variant")]
fn arguments(payload: Payload) -> Vec<Value> {
    match payload {
        Payload::Binary(bytes) => vec![json!({ "$bytes": BASE64_STANDARD.encode(bytes) })],
        Payload::Text(values) => values,
        Payload::String(text) => vec![Value::from(text)],
    }
}

fn payload(command: &Value) -> Payload {
    let args = command["args"].as_array().cloned().unwrap_or_default();
    match args.first().and_then(|first| first["$bytes"].as_str()) {
        Some(text) => Payload::from(BASE64_STANDARD.decode(text).expect("the test sends base64")),
        None => Payload::from(args),
    }
}

/// Sends, once the client does: it reports that it has connected again a moment before it uses the new connection.
fn send(mut attempt: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    for _ in 0..SEND_ATTEMPTS {
        match attempt() {
            Err(Error::IllegalActionBeforeOpen()) => std::thread::sleep(SEND_DELAY),
            result => return result,
        }
    }
    attempt()
}

fn connect(command: &Value, namespace: &str, transport: TransportType) -> Result<Client, Error> {
    let (at, refused) = (namespace.to_owned(), namespace.to_owned());
    let mut builder = ClientBuilder::new(command["url"].as_str().unwrap_or_default())
        .namespace(namespace)
        .transport_type(transport)
        .reconnect_delay(100, 1_000)
        .on(Event::Connect, move |_, _: RawClient| report(json!({ "type": "connect", "namespace": at })))
        .on(Event::Close, |_, _: RawClient| report(json!({ "type": "disconnect" })))
        .on(Event::Error, move |payload, _: RawClient| {
            let message = match arguments(payload).first() {
                Some(Value::Object(error)) => error["message"].as_str().unwrap_or_default().to_owned(),
                Some(Value::String(text)) => text.clone(),
                other => format!("{other:?}"),
            };
            report(json!({ "type": "refused", "namespace": refused, "message": message }));
        });
    for name in ["hello", "ack", "got it"] {
        builder = builder.on(name, move |payload, _: RawClient| {
            report(json!({ "type": "event", "name": name, "args": arguments(payload) }));
        });
    }
    if !command["auth"].is_null() {
        builder = builder.auth(command["auth"].clone());
    }
    builder.connect()
}

fn main() {
    let transport = match std::env::args().nth(1).as_deref() {
        Some("polling") => TransportType::Polling,
        Some("websocket") => TransportType::Websocket,
        _ => TransportType::WebsocketUpgrade,
    };
    let mut clients = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let command: Value = serde_json::from_str(&line.unwrap_or_default()).unwrap_or_default();
        let client = clients.get(command["namespace"].as_str().unwrap_or("/"));
        let result = match (command["do"].as_str(), client) {
            (Some("connect"), _) => {
                clients.clear();
                command["namespaces"].as_array().into_iter().flatten().try_for_each(|namespace| {
                    let namespace = namespace.as_str().unwrap_or_default();
                    clients.insert(namespace.to_owned(), connect(&command, namespace, transport.clone())?);
                    Ok(())
                })
            }
            (Some("emit"), Some(client)) => {
                send(|| client.emit(command["name"].as_str().unwrap_or_default(), payload(&command)))
            }
            (Some("call"), Some(client)) => {
                let id = command["id"].clone();
                let answered = move |payload, _: RawClient| {
                    // It hands over the list of arguments as one.
                    let args = match arguments(payload).as_slice() {
                        [Value::Array(args)] => args.clone(),
                        args => args.to_vec(),
                    };
                    report(json!({ "type": "answer", "id": id, "args": args }));
                };
                let name = command["name"].as_str().unwrap_or_default();
                send(|| client.emit_with_ack(name, payload(&command), ANSWER_TIMEOUT, answered.clone()))
            }
            (Some("disconnect"), _) => clients.drain().try_for_each(|(_, client)| client.disconnect()),
            _ => Ok(()),
        };
        if let Err(error) = result {
            report(json!({ "type": "failed", "message": error.to_string() }));
        }
    }
    // The library's threads may outlive the last command.
    std::process::exit(0);
}
