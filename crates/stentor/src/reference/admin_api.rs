//! docs/admin-api.md, generated from the declaration of the admin API.

use std::fmt::Write;
use stentor_control::admin_api::{COMMON_REASONS, OPERATIONS, Operation, ROUTING_REASONS, Reason};

const HEAD: &str = "\
# Admin API

<!-- Generated from crates/control/src/admin/api.rs; a test compares. To generate it again:
     cargo run -p stentor -- reference admin-api > docs/admin-api.md -->

The admin API listens on `server.admin` (default `127.0.0.1:8001`). Your backend publishes messages, acts on sessions and
pushes documents with it, and your monitoring reads metrics and status. [openapi.json](openapi.json) describes it in OpenAPI 3.1, with the JSON Schema
of every body.

- **Token:** If `server.admin_token` is set, send `Authorization: Bearer TOKEN`. An address beyond loopback requires a token.
- **Errors** have a JSON body, `{\"code\":…,\"message\":…}`. `code` is for programs, `message` for humans. The codes are also the
  label `reason` of the [metrics](metrics.md#admin-port) that count refusals.
- **Web pages** can't use the API ([security.md](security.md#the-admin-port)).
- `HEAD` works wherever `GET` does.
- The headers of a request have at most 16 KiB and 64 fields; more are answered with 431.

";

pub(super) fn markdown() -> String {
    let mut page = String::from(HEAD);
    // Writing to a string can't fail.
    _ = write(&mut page);
    page
}

fn write(page: &mut String) -> std::fmt::Result {
    writeln!(page, "| operation | effect |\n|---|---|")?;
    for operation in &OPERATIONS {
        writeln!(page, "| [`{}`](#{}) | {} |", title(operation), anchor(operation), operation.summary)?;
    }
    for operation in &OPERATIONS {
        write_operation(page, operation)?;
    }
    writeln!(page, "\n## Errors of every operation\n\n| status | code | meaning |\n|---|---|---|")?;
    COMMON_REASONS.iter().chain(&ROUTING_REASONS).try_for_each(|reason| write_reason(page, reason))
}

fn title(operation: &Operation) -> String {
    format!("{} {}", operation.method, operation.path.replace("{key}", "KEY"))
}

/// Returns the anchor that GitHub makes of the heading.
fn anchor(operation: &Operation) -> String {
    let kept = title(operation).chars().filter(|c| c.is_alphanumeric() || *c == ' ').collect::<String>();
    kept.replace(' ', "-").to_lowercase()
}

fn write_operation(page: &mut String, operation: &Operation) -> std::fmt::Result {
    writeln!(page, "\n## `{}`\n\n{}", title(operation), operation.description)?;
    if !operation.requests.is_empty() {
        writeln!(page, "\n| request body | `Content-Type` |\n|---|---|")?;
        for body in operation.requests {
            let kind = if body.content_type == "*/*" { "any; required" } else { body.content_type };
            writeln!(page, "| {} | {kind} |", body.meaning)?;
        }
    }
    if operation.path.contains("{key}") {
        page.push_str(
            "\nIn `KEY`, slashes stay slashes. With `?sequence=N`, the server refuses the request if a higher number came before.\n",
        );
    }
    writeln!(page, "\n| status | body or code | meaning |\n|---|---|---|")?;
    for (status, body) in operation.responses {
        let kind = body.content_type.split(';').next().unwrap_or_default();
        writeln!(page, "| {status} | {kind} | {} |", body.meaning)?;
    }
    operation.reasons.iter().try_for_each(|reason| write_reason(page, reason))
}

fn write_reason(page: &mut String, reason: &Reason) -> std::fmt::Result {
    writeln!(page, "| {} | `{}` | {} |", reason.status(), reason.code, reason.meaning)
}
