//! The page: HTML with its style, and the JavaScript modules that it loads from the same server.
//!
//! The page's content security policy, in a `meta` element, allows scripts of this server, and the page's
//! style by its hash. A test compares the hash, and prints the new one after a change. Modules are served as
//! they are written, without a build. Two of the transports need other client libraries, which are in the
//! folder of `--libraries`. If a library is missing, the page shows why the transport is disabled. The
//! documents that the page links to are served as pages.

mod documents;

pub use documents::document;

use crate::simulation::SECONDS_PER_TICK;
use crate::upstream::{STOP_EVENT, STOP_NODE_EVENT};
use crate::worker::{PATH, PROGRAM};
use anyhow::{Context, bail};
use std::path::Path;

/// The configuration of the room. The page shows it.
pub const ROOM: &str = include_str!("../room.toml");
const PAGE: &str = include_str!("page.html");
const MODULES: [(&str, &str); 9] = [
    ("centre.js", include_str!("centre.js")),
    ("dom.js", include_str!("dom.js")),
    ("main.js", include_str!("main.js")),
    ("meter.js", include_str!("meter.js")),
    ("outage.js", include_str!("outage.js")),
    ("replay.js", include_str!("replay.js")),
    ("room.js", include_str!("room.js")),
    ("snippets.js", include_str!("snippets.js")),
    ("worker.js", include_str!("worker.js")),
];
/// Transports that need a library, each with the library's file in a folder of npm packages.
const LIBRARIES: [(&str, &str); 2] =
    [("socket.io", "socket.io-client/dist/socket.io.min.js"), ("sockjs", "sockjs-client/dist/sockjs.min.js")];
const SCRIPT: &str = "text/javascript; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// Properties of the server that the page's scripts need.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `true` if there is a feed "replay".
    pub has_replay: bool,
    /// The base of the admin API, such as `http://127.0.0.1:8001`.
    pub admin: String,
    /// `true` if the admin API requires a token.
    pub needs_token: bool,
    /// The part of the demo that the page may stop. `None`: nothing.
    pub stops: Option<Stops>,
    /// The worker, which is shown only if it runs.
    pub worker: Option<WorkerFacts>,
}

/// A part of the demo that the page may stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// The API, for a while.
    Api,
    /// The cluster's node that fetches the shown match.
    Node,
}

/// Properties of the worker that the page's scripts need.
#[derive(Clone, Copy, Debug)]
pub struct WorkerFacts {
    /// `true` if the page may restart it.
    pub can_restart: bool,
}

/// A file of the page.
#[derive(Clone, Debug)]
pub struct File {
    /// The path of its URL, such as `/demo/main.js`.
    pub path: String,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The content.
    pub body: Vec<u8>,
}

/// Returns the files that the demo serves in addition to the routes of the server. `libraries` is a folder of
/// npm packages, `docs` that of `make docs`.
///
/// # Errors
/// `libraries` has none of the libraries, or `docs` isn't the documentation.
pub fn files(libraries: Option<&Path>, docs: Option<&Path>, facts: &Facts) -> anyhow::Result<Vec<File>> {
    let file = |path: String, content_type, body: &[u8]| File { path, content_type, body: body.into() };
    let script = |name: &str, body: &[u8]| file(format!("/demo/{name}"), SCRIPT, body);
    let mut files = vec![file("/".into(), HTML, PAGE.as_bytes())];
    files.extend(MODULES.iter().map(|(name, text)| script(name, text.as_bytes())));
    match docs {
        Some(folder) => files.extend(documents::site(folder)?),
        None => files.extend(documents::plain()),
    }
    let mut found = serde_json::Map::new();
    for (transport, path) in LIBRARIES {
        let body = libraries.and_then(|folder| std::fs::read(folder.join(path)).ok());
        let library = body.map(|body| script(&format!("{transport}.js"), &body));
        found.insert(transport.into(), library.as_ref().map(|file| file.path.clone()).into());
        files.extend(library);
    }
    if let Some(folder) = libraries
        && found.values().all(serde_json::Value::is_null)
    {
        bail!("neither socket.io-client nor sockjs-client is in {}", folder.display());
    }
    files.push(script("facts.js", facts_module(found, facts)?.as_bytes()));
    Ok(files)
}

/// Makes the module `facts.js`, with the values that are known only when the server starts.
fn facts_module(
    libraries: serde_json::Map<String, serde_json::Value>,
    facts: &Facts,
) -> anyhow::Result<String> {
    let worker = facts.worker.map(
        |worker| serde_json::json!({ "path": PATH, "program": PROGRAM, "canRestart": worker.can_restart }),
    );
    let event_of = |stops, event: &str| (facts.stops == Some(stops)).then(|| event.to_owned()).into();
    let exports: [(&str, serde_json::Value); 9] = [
        ("libraries", libraries.into()),
        ("replay", facts.has_replay.into()),
        ("clockSpeed", SECONDS_PER_TICK.into()),
        ("admin", facts.admin.as_str().into()),
        ("needsToken", facts.needs_token.into()),
        ("roomConfig", ROOM.into()),
        ("stopEvent", event_of(Stops::Api, STOP_EVENT)),
        ("stopNodeEvent", event_of(Stops::Node, STOP_NODE_EVENT)),
        ("worker", worker.into()),
    ];
    let mut module = String::new();
    for (name, value) in exports {
        let value = serde_json::to_string(&value).with_context(|| format!("the page's {name}"))?;
        module += &format!("export const {name} = {value};\n");
    }
    Ok(module)
}

#[cfg(test)]
mod tests;
