//! Feeds and their upstreams.

use super::{HOUR, ms, s};
use crate::config::section::section;
use crate::config::setting::{Source, choice, fields};
use crate::config::value::{Bytes, Headers, SecretText};
use std::time::Duration;
use stentor_control::Proxy;

choice! {
    /// The content of documents.
    Content => stentor_control::Content {
        /// JSON, whatever the Content-Type; anything else is an error.
        Json = "json",
        /// Anything. A document with a JSON Content-Type must be valid JSON.
        Any = "any",
    }
}

choice! {
    /// Redirects that are followed.
    Redirects => stentor_control::Redirects {
        /// Every redirect is a failure.
        Never = "never",
        /// At most three redirects in a row are followed, within the path of `url`.
        SamePath = "same_path",
    }
}

choice! {
    /// Characters of keys.
    Keys => stentor_hub::KeyCharset {
        /// `A-Z a-z 0-9 . _ ~ @ : = + , -`.
        Ascii = "ascii",
        /// Any characters but `\`, control characters and those that change the direction of text, and no `%` before two hexadecimal
        /// digits.
        Utf8 = "utf8",
    }
}

choice! {
    /// Response that ends a feed.
    EndSignal {
        /// `Cache-Control: max-age=0`.
        MaxAgeZero = "max-age=0",
    }
}

choice! {
    /// Method of requests.
    RequestMethod => stentor_control::RequestMethod {
        /// Conditional requests.
        Get = "GET",
        /// Requests with a body.
        Post = "POST",
    }
}

choice! {
    /// Compression of responses.
    ContentCoding => stentor_control::ContentCoding {
        /// RFC 1952.
        Gzip = "gzip",
        /// RFC 7932.
        Brotli = "br",
    }
}

section! {
    /// An HTTP API whose documents are feeds. Write one `[[feeds]]` per API. It serves the keys that begin with `prefix`, or
    /// that match the template `key`. docs/feeds.md, "From key to URL", has the order of precedence if several match a
    /// key.
    [feeds] Feed => (upstream) {
        /// Name in logs and metrics: 1 to 64 of `a-z 0-9 - _`.
        name: String;
        /// Prefix of the keys, e.g. `scores/`. The whole key is appended to the path of `url`. If `prefix` and `key` are
        /// empty, the API serves every key.
        prefix: String;
        /// Template of the keys, instead of a prefix, e.g. `matchesfeed/{id}/matchcentre`. A placeholder matches a segment or
        /// a part of one, at least one character. `{rest*}` as the last segment matches all remaining segments.
        key: String;
        /// Characters of the keys, besides `/`, and of `prefix` and `key`. Other keys that `prefix` or `key` matches are refused. In the
        /// path of `url`, characters outside of `"ascii"` are percent-encoded.
        keys: Keys;
        /// Whether backends push the documents (`PUT /api/v1/feeds/KEY`). Then only `name`, `prefix`, `key` and `keys` apply, and there
        /// is no `url`. A client that subscribes before the first document waits for it. Keys without any `[[feeds]]` can be
        /// pushed too, but are `not_found` until then.
        push: bool = false;
        /// URL of the documents: `http://` or `https://`, with an optional path and query. Each placeholder of `key` must
        /// occur in the path or the query, where its value is escaped: `http://api/match/{id}?full=1`. `${NAME}` and
        /// `${file:/path}` are replaced as in `headers`: a value at the beginning is `http://HOST[:PORT][/PATH]`, or the same
        /// with `https`; elsewhere it is percent-encoded.
        url: String;
        /// Time between two fetches of a key. `Cache-Control: max-age` of the response overrides it.
        poll_interval: Duration, in ms(1)..=s(24 * 3600);
        /// Time for one fetch, from its start to the last byte.
        timeout: Duration, in ms(1)..=HOUR;
        /// Time to open a connection: looking up the host, connecting, the TLS handshake. `timeout` includes it.
        connect_timeout: Duration, in ms(1)..=HOUR;
        /// Time without progress before the response headers and within the body. `"0s"`: `timeout`.
        read_timeout: Duration, in ms(0)..=HOUR;
        /// Size of one document, as received and after decompression.
        document_bytes_max: Bytes, in Bytes(1)..=Bytes::mib(1024);
        /// Concurrent fetches. There is never more than one per key.
        concurrency_max: usize, in 1..=10_000;
        /// Fetches started per second, evenly distributed: at most a tenth of them start at once.
        requests_per_second_max: usize, in 1..=1_000_000;
        /// Size of the headers of a response. There may be 1,000 of them.
        response_header_bytes_max: Bytes, in Bytes::kib(8)..=Bytes::mib(1);
        /// Time after which a connection is not used for another fetch. A new connection looks up the addresses of the host again.
        connection_age_max: Duration, in s(1)..=s(24 * 3600);
        /// The method of requests. With `"POST"`, every request has a `body` and no conditional headers, and is sent again if a
        /// connection that was kept open is lost: it must be safe to repeat.
        method: RequestMethod;
        /// The body of requests with `method = "POST"`, a JSON text of at most 64 KiB. A placeholder of `key` is a whole string:
        /// `'{ "query": "…", "variables": { "id": "{id}" } }'`. Other braces stay as they are. `Content-Type` is `application/json`, unless
        /// `headers` has another.
        body: String;
        /// Compressions of responses that the API is offered, in `Accept-Encoding`. `[]`: none.
        accept_encoding: Vec<ContentCoding>;
        /// Headers sent with every fetch. `${NAME}` in a value is replaced by the environment variable of that name, as in
        /// `{ Authorization = "Bearer ${API_TOKEN}" }`, and `${file:/path}` by the content of a file, at most 64 kB in one line.
        /// Files are read again when they change (docs/feeds.md, "Secrets"). Values are never shown or logged.
        headers: Headers;
        /// User and password for the API, `"USER:PASSWORD"`, sent as `Authorization: Basic …` with every fetch. It may name secrets, as
        /// `headers` may: `"reader:${file:/run/secrets/api}"`. Never shown or logged.
        basic_auth: SecretText;
        /// The content of the documents.
        content: Content;
        /// Whether `Cache-Control` of responses is ignored. If not, `max-age=N` with N above 0 sets the time of the next
        /// fetch.
        ignore_cache_control: bool;
        /// Minimum value taken from `Cache-Control: max-age`.
        max_age_min: Duration, in ms(1)..=s(24 * 3600);
        /// Maximum value taken from `Cache-Control: max-age`. `"0s"`: `max_age_max` of `[feeds_limits]`.
        max_age_max: Duration, in s(0)..=s(365 * 24 * 3600);
        /// Responses that end a feed, besides status 410. With `"max-age=0"`, a response with `Cache-Control: max-age=0` is
        /// the last version: the feed becomes `complete` and is not fetched again.
        complete_on: Vec<EndSignal> => upstream.complete_on_max_age_zero;
        /// Host of the header `Host`, of SNI, and the name that the certificate must have, with an optional port:
        /// `"api.example.com"`. Stentor still connects to the host of `url`. Empty: the host of `url`.
        host: String;
        /// Path of a Unix domain socket that requests go to: `"/run/api.sock"`. `url` begins with `http://` then, and its host is only
        /// sent as the header `Host`.
        socket: String;
        /// Proxy for requests: `"http://proxy.example.com:3128"`, or `"environment"` for the values of the
        /// environment variables `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`. Requests for `https://` go
        /// through a tunnel (`CONNECT`). Empty: no proxy.
        proxy: Proxy;
        /// File with PEM certificates to trust for this API. Empty: `ca_file` of `[feeds_limits]`.
        ca_file: String;
        /// File with the PEM certificate that Stentor presents to an API that requires one, followed by intermediate certificates.
        /// Needs `client_key_file`.
        client_certificate_file: String;
        /// File with the PEM private key of that certificate, without a password.
        client_key_file: String;
        /// Redirects that are followed. With `"same_path"`, at most three in a row: to the same scheme, host and port, and to a URL that
        /// begins with the text of `url` before its first placeholder. Each counts as a request, and all happen within `timeout`.
        redirects: Redirects;
        /// Whether cookies of the API are sent back to it, for servers that otherwise start a session per
        /// request. Stentor keeps at most 16 of them, of 4 kB each, in memory: on each node, and for its own
        /// host only. They are in no output.
        cookies: bool;
        /// Members that identify the objects of an array, tried in this order before `id` and similar names. They keep
        /// patches small when objects change or move.
        identity: Vec<String>;
        /// JSON pointers to members whose changes alone don't make a new version, such as `["/generated_at",
        /// "/items/*/age"]`; `*` matches every member or element. Their changes are sent with the next other
        /// change. At most 32, of at most 256 bytes each.
        ignore: Vec<String>;
    }
}

section! {
    /// Limits and timing of all feeds together.
    [feeds_limits] FeedsLimits => (control.feeds) {
        /// Keys kept.
        keys_max: usize, in 1..=10_000_000;
        /// Size of all kept documents.
        documents_bytes_max: Bytes, in Bytes::kib(64)..=Bytes(1 << 42);
        /// Concurrent fetches of all feeds. Each `[[feeds]]` may always use an equal share of them, and at
        /// least one.
        fetches_max: usize, in 1..=10_000;
        /// Size of all responses that are being received. At this limit, all fetches but the oldest one wait
        /// in the middle of their responses.
        fetches_bytes_max: Bytes, in Bytes::kib(64)..=Bytes(1 << 42);
        /// Time that a key without subscribers is still fetched and kept.
        idle_ttl: Duration, in s(0)..=s(24 * 3600);
        /// Time after which a key with a document becomes `not_found`, if its API only answers 404. Until
        /// then it is `stale`, and fetched at its usual interval. Zero: at once.
        not_found_after: Duration, in s(0)..=s(24 * 3600);
        /// Time until a key that is `not_found` is fetched again, if a client asks for it.
        not_found_retry_interval: Duration, in ms(1)..=s(24 * 3600);
        /// Maximum delay before the first retry of a failed fetch. It doubles with each further failure.
        backoff_initial: Duration, in ms(1)..=s(24 * 3600);
        /// Maximum delay before a retry, unless `Retry-After` is longer.
        backoff_max: Duration, in ms(1)..=s(24 * 3600);
        /// Maximum value taken from `Retry-After` with status 429. With another status, it is at most a minute as well.
        retry_after_max: Duration, in s(0)..=s(24 * 3600);
        /// Maximum value taken from `Cache-Control: max-age`, unless `max_age_max` of a `[[feeds]]` section is set.
        max_age_max: Duration, in s(1)..=s(365 * 24 * 3600);
        /// Keys with pushed documents (`PUT /api/v1/feeds/KEY`).
        pushed_keys_max: usize, in 1..=10_000_000;
        /// Size of all pushed documents. For a new document, documents without subscribers are evicted, the least recently
        /// used first. If that isn't enough, the new document is refused.
        pushed_documents_bytes_max: Bytes, in Bytes(0)..=Bytes(1 << 42);
        /// Size of one pushed document, as received and after decompression.
        pushed_document_bytes_max: Bytes, in Bytes(1)..=Bytes::mib(1024);
        /// File with PEM certificates to trust for `https://`. Empty: the system's certificates.
        ca_file: String;
    }
}

fields! {
    Vec<ContentCoding> => Vec<stentor_control::ContentCoding>:
        codings -> codings.iter().map(|coding| match coding {
            ContentCoding::Gzip => stentor_control::ContentCoding::Gzip,
            ContentCoding::Brotli => stentor_control::ContentCoding::Brotli,
        }).collect(),
        codings -> codings.iter().map(Source::load).collect();
    Vec<EndSignal> => bool: signals -> signals.contains(&EndSignal::MaxAgeZero),
        ends -> ends.then_some(EndSignal::MaxAgeZero).into_iter().collect();
}
