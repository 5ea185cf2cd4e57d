//! Responses to invalid requests. The connection ends after them.

use super::{END, Step};
use crate::executor::Executor;
use crate::protocols::request::{ResponseOptions, answer, cors, cors_of_error, text};
use stentor_wire::http1;

/// Answers with an error. The connection ends, because the rest of its input can't be parsed.
pub(super) fn bad_request(ex: &Executor, received: &[u8], out: &mut Vec<u8>, status: u16, why: &str) -> Step {
    write_error(ex, received, out, status, &[], why);
    END
}

/// Returns the headers with which a page may read an error, according to the received part of the page's request. A page of the
/// server's own origin needs none. If only a part of a long URL has been received, pages of all origins may read the error.
fn cors_of_received<'r>(ex: &Executor, received: &'r [u8], status: u16) -> Vec<(&'r str, &'r str)> {
    if status == 414 && !received.contains(&b'\n') {
        return cors(Some("*"));
    }
    let origin = http1::find_header(received, "origin");
    let origin = origin.and_then(|origin| std::str::from_utf8(origin).ok());
    cors_of_error(ex, origin, "", false)
}

/// Appends an error as the last response of a connection. `received` is the received part of the request's headers.
pub(super) fn write_error(
    ex: &Executor,
    received: &[u8],
    out: &mut Vec<u8>,
    status: u16,
    extra: &[(&str, &str)],
    why: &str,
) {
    ex.metrics().request_errors.add(1);
    let extra = [&cors_of_received(ex, received, status), extra].concat();
    text(out, ResponseOptions::last(ex), status, &extra, why);
}

/// Answers a request whose body is too large: 413 without a body, as Engine.IO's clients expect.
pub(super) fn too_large(ex: &Executor, head: &[u8], out: &mut Vec<u8>) -> Step {
    ex.metrics().request_errors.add(1);
    let extra = cors_of_received(ex, head, 413);
    answer(out, ResponseOptions::last(ex), 413, "text/plain; charset=utf-8", &extra, b"");
    END
}

/// Appends the response to a request that is too large for the remaining memory.
pub(super) fn write_memory_short(ex: &Executor, head: &[u8], out: &mut Vec<u8>) {
    let why = "the server is short of memory; send it again later (limits.memory_bytes_max)";
    write_error(ex, head, out, 503, &[("Retry-After", "5")], why);
}
