//! `stentor publish`: publishes one message to a room through the admin API of a running server.

use crate::cli::PublishArgs;
use std::process::ExitCode;
use stentor_control::Target;

pub(crate) fn run(args: &PublishArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let PublishArgs { admin, room, namespace, event, idempotency_key, data } = args;
    let target = Target {
        room: room.as_deref(),
        namespace: namespace.as_deref(),
        event: event.as_deref(),
        idempotency_key: idempotency_key.as_deref(),
    };
    runtime.block_on(admin.client().publish(target, data))?;
    Ok(ExitCode::SUCCESS)
}
