//! The environment: `STENTOR_SECTION_KEY`, e.g. `STENTOR_LIMITS_MESSAGE_BYTES_MAX=2MB`.
//!
//! Repeated sections such as feeds can't be set here, because the name of a variable can't identify one of
//! them. An unknown variable causes only a warning, because orchestrators set variables with this prefix (for
//! a service `stentor`, Kubernetes sets `STENTOR_PORT` and others).

use super::finding::WrittenKey;
use super::nearest::nearest;
use super::setting::Raw;
use super::{SourceLocation, Sources, sections};

/// Prefix of the variables that configure Stentor.
pub(crate) const PREFIX: &str = "STENTOR_";
/// Variable with the path of the configuration file. `--config` takes precedence.
pub(crate) const CONFIG_FILE: &str = "STENTOR_CONFIG";

/// Returns the name of a key's variable.
pub(crate) fn variable(section: &str, key: &str) -> String {
    format!("{PREFIX}{}_{}", section.to_uppercase().replace('.', "_"), key.to_uppercase())
}

/// Applies the variables, and records their mistakes.
pub(super) fn apply(sources: &mut Sources, variables: impl IntoIterator<Item = (String, String)>) {
    let once = sections().into_iter().filter(|info| !info.repeated);
    let known: Vec<_> = once
        .flat_map(|info| {
            info.keys.into_iter().map(move |key| (variable(info.name, key.name), info.name, key))
        })
        .collect();
    let mut variables: Vec<_> = variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    variables.sort();
    for (name, text) in variables {
        if name == CONFIG_FILE {
            continue;
        }
        let Some((_, section, key)) = known.iter().find(|(variable, ..)| *variable == name) else {
            let lower = name.to_lowercase();
            let names: Vec<_> = known.iter().map(|(variable, ..)| variable.to_lowercase()).collect();
            if let Some(near) = nearest(&lower, names.iter().map(String::as_str)) {
                let text = format!("unknown variable {name}; did you mean {}?", near.to_uppercase());
                sources.warn(SourceLocation::Default, text);
            }
            continue;
        };
        let location = SourceLocation::Variable(name.clone());
        let written = WrittenKey::new(section, key.name, &text, key.secret);
        sources.locations.written.insert(location.clone(), written);
        match sources.config.set(section, key.name, Raw::Text(&text)) {
            Some(Err(error)) => sources.problem(location, error),
            _ => _ = sources.locations.keys.insert(((*section).into(), key.name), location),
        }
    }
}
