//! Files that pages of all origins may load: scripts with `integrity` and `crossorigin`, modules, and scripts of pages with
//! `Cross-Origin-Embedder-Policy`. The options contain the compressed forms.

use super::request::{RequestContext, RequestOutcome, text};
use stentor_wire::http1::Request;

/// Headers that allow pages of all origins, without cookies: the response is the same for all clients.
const PUBLIC: [(&str, &str); 2] =
    [("Access-Control-Allow-Origin", "*"), ("Cross-Origin-Resource-Policy", "cross-origin")];

/// Returns `true` if a client accepts a coding (RFC 9110, section 12.5.3).
fn accepts(request: &Request<'_>, coding: &str) -> bool {
    let values = request.headers().all("accept-encoding").filter_map(|value| std::str::from_utf8(value).ok());
    values.flat_map(|value| value.split(',')).any(|element| {
        let (name, weight) = element.split_once(';').unwrap_or((element, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        name.trim().eq_ignore_ascii_case(coding) && weight.parse() != Ok(0.0)
    })
}

/// Returns `true` if an `If-None-Match` names the content with this tag, in any coding (RFC 9110, section 13.1.2, weak
/// comparison).
fn names(list: &str, tag: &str) -> bool {
    list.split(',').map(|one| one.trim().trim_start_matches("W/").trim_matches('"')).any(|one| {
        let coding = one.strip_prefix(tag);
        one == "*" || coding.is_some_and(|coding| coding.is_empty() || coding.starts_with(['-', ';']))
    })
}

/// Answers a request for the file with this index in the options.
pub(crate) fn handle_request(cx: &mut RequestContext<'_>, place: usize) -> RequestOutcome {
    if !cx.reads() {
        cx.count_error();
        let extra = [&PUBLIC[..], &[("Allow", "GET, HEAD")]].concat();
        text(cx.out, cx.options, 405, &extra, "only GET and HEAD are answered here");
        return cx.answered();
    }
    let options = cx.ex.options.clone();
    let file = &options.files[place];
    let (coding, body) = if accepts(cx.request, "br") {
        (Some("br"), &file.brotli)
    } else if accepts(cx.request, "gzip") {
        (Some("gzip"), &file.gzip)
    } else {
        (None, &file.body)
    };
    let tag = match coding {
        Some(coding) => format!("\"{}-{coding}\"", file.tag),
        None => format!("\"{}\"", file.tag),
    };
    let mut extra = PUBLIC.to_vec();
    extra.extend([("Cache-Control", &*file.cache_control), ("Vary", "Accept-Encoding"), ("ETag", &*tag)]);
    if cx.request.header_str("if-none-match").is_some_and(|list| names(list, &file.tag)) {
        return cx.answer(304, &file.content_type, &extra, b"");
    }
    extra.extend(coding.map(|coding| ("Content-Encoding", coding)));
    cx.answer(200, &file.content_type, &extra, body)
}
