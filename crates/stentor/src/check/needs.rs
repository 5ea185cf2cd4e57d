//! The environment variables and files that a configuration needs, and whether they are there.

use crate::config::{Config, Finding, Locations};
use serde_json::{Value, json};
use std::fmt::Write;
use stentor_control::{Reference, references};

/// The variable with the secret of `[auth.proxy]`, which doesn't belong in the file.
const PROXY_SECRET: &str = "STENTOR_AUTH_PROXY_SECRET";

/// An environment variable or a file that the server reads at its start.
pub(super) struct Need {
    kind: &'static str,
    name: String,
    /// The section and the key that need it, for example `hooks[0]` and `secret`.
    section: String,
    key: &'static str,
    /// The reason why it can't be used. `None` if it can.
    missing: Option<String>,
}

/// Returns the variables and files that the configuration needs. `variable` returns `true` if an environment
/// variable has a value.
pub(super) fn of(config: &Config, variable: impl Fn(&str) -> bool) -> Vec<Need> {
    let unset = |name: &str| (!variable(name)).then(|| "is not set".to_owned());
    let mut all = Vec::new();
    for (section, key, text) in config.secret_texts() {
        for reference in references(text).unwrap_or_default() {
            let (kind, name, missing) = match &reference {
                Reference::Variable(name) => ("variable", (*name).to_owned(), unset(name)),
                Reference::File(path) => {
                    let unusable =
                        std::fs::metadata(path).err().map(|error| format!("cannot be read: {error}"));
                    ("file", path.display().to_string(), unusable)
                }
            };
            all.push(Need { kind, name, section: section.clone(), key, missing });
        }
    }
    if config.auth_proxy.secret_header.get().is_some() && config.auth_proxy.secret.0.is_none() {
        let (section, missing) = ("auth.proxy".to_owned(), unset(PROXY_SECRET));
        all.push(Need {
            kind: "variable",
            name: PROXY_SECRET.into(),
            section,
            key: "secret_header",
            missing,
        });
    }
    for (section, key, path) in config.files() {
        let missing = std::fs::metadata(&path).err().map(|error| format!("cannot be read: {error}"));
        all.push(Need { kind: "file", name: path, section, key, missing });
    }
    all
}

impl Need {
    /// Returns a warning about a variable that isn't set. Files are reported with the configuration's own findings.
    pub(super) fn warning(&self, locations: &Locations) -> Option<Finding> {
        let Self { name, section, key, .. } = self;
        let why = self.missing.as_ref().filter(|_| self.kind == "variable")?;
        let text = format!(
            "{key} in {}: the environment variable {name} {why} here; set it where the server starts",
            bracketed(section)
        );
        Some(locations.warning(section, key, text))
    }

    pub(super) fn to_json(&self) -> Value {
        let Self { kind, name, section, key, missing } = self;
        json!({ "kind": kind, "name": name, "section": section, "key": key, "available": missing.is_none() })
    }
}

/// Writes the list.
pub(super) fn write(text: &mut String, needs: &[Need]) {
    if !needs.is_empty() {
        text.push_str("\nNeeds:\n");
    }
    for Need { kind, name, section, key, missing } in needs {
        let state = missing.as_deref().unwrap_or(if *kind == "file" { "can be read" } else { "is set" });
        // Writing to a string can't fail.
        _ = writeln!(text, "  {kind} {name} {state}: {key} in {}", bracketed(section));
    }
}

/// Returns `[[hooks]]` for `hooks[0]`, and `[server]` for `server`.
fn bracketed(section: &str) -> String {
    match section.split_once('[') {
        Some((name, _)) => format!("[[{name}]]"),
        None => format!("[{section}]"),
    }
}
