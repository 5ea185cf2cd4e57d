//! `stentor publish`: one message to a room, by the admin API of a running server.

use crate::cli::PublishArgs;
use std::process::ExitCode;
use stentor_control::{Target, publish_client};

pub(crate) fn run(args: &PublishArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let PublishArgs { admin, token, room, namespace, event, idempotency_key, data } = args;
    let url = url_of(admin);
    let target = Target {
        room: room.as_deref(),
        namespace: namespace.as_deref(),
        event: event.as_deref(),
        idempotency_key: idempotency_key.as_deref(),
    };
    runtime.block_on(publish_client(&url, token.as_deref(), target, data))?;
    Ok(ExitCode::SUCCESS)
}

/// The URL of an admin port. The log writes addresses without a scheme.
pub(crate) fn url_of(admin: &str) -> String {
    if admin.contains("://") { admin.to_owned() } else { format!("http://{admin}") }
}
