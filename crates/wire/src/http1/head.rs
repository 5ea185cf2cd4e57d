//! Finds and parses heads (RFC 9112 sections 2 to 6). httparse parses the grammar; this module decides the
//! framing.

use std::mem::MaybeUninit;
use std::ops::{Deref, Range};

use super::list::{table, tokens, trim};
use super::{BodyKind, Error};

/// Upper limit for [`Limits::headers_max`]: the parser's table is on the stack.
const HEADERS_CAPACITY: usize = 128;

/// Limits for the headers of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of the headers in bytes, from the first line to the empty line. Default 16,384.
    pub header_bytes_max: usize,
    /// Maximum number of headers, at most 128. Default 100.
    pub headers_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { header_bytes_max: 16 * 1024, headers_max: 100 }
    }
}

/// Finds the end of a head that arrives in pieces. The scanner remembers its position, so a head that arrives
/// byte by byte costs the same as a head in one piece.
///
/// Invariant: `line_start <= scanned <=` the length of the buffer of the last call.
#[derive(Debug, Clone, Default)]
pub struct HeadScanner {
    scanned: usize,
    line_start: usize,
    /// The position after the first line that isn't empty; 0 before its end. Empty lines before it are skipped (RFC
    /// 9112 section 2.2).
    headers_start: usize,
}

/// A complete head that a [`HeadScanner`] has found at the start of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Length of the head, which includes the empty line.
    pub bytes: usize,
    /// Position of the header lines. Each ends with CRLF.
    lines: Range<usize>,
}

impl Head {
    /// Parses the head, like [`parse_request`], in the buffer in which it was found.
    ///
    /// # Errors
    /// Any [`Error`].
    pub fn parse_request<'b>(&self, buf: &'b [u8], limits: &Limits) -> Result<Request<'b>, Error> {
        parse_lines(&buf[..self.bytes], &buf[self.lines.clone()], limits)
    }
}

impl HeadScanner {
    /// Searches for the end of the head at the start of `buf`, which must begin with the same bytes as in the
    /// last call. `Some(length)` includes the empty line, and resets the scanner for the next head.
    ///
    /// # Errors
    /// [`Error::BareLineFeed`], [`Error::TargetTooLong`] if the first line does not end within the limit,
    /// [`Error::HeadTooLarge`] if the head does not.
    pub fn find_end(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<usize>, Error> {
        Ok(self.find(buf, limits)?.map(|head| head.bytes))
    }

    /// Like [`HeadScanner::find_end`], for a head that is parsed next.
    ///
    /// # Errors
    /// The same as [`HeadScanner::find_end`].
    pub fn find(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<Head>, Error> {
        let window = &buf[..buf.len().min(limits.header_bytes_max)];
        while let Some(offset) = memchr::memchr(b'\n', window.get(self.scanned..).unwrap_or_default()) {
            let line_feed = self.scanned + offset;
            if line_feed == 0 || window[line_feed - 1] != b'\r' {
                return Err(Error::BareLineFeed);
            }
            let is_empty = line_feed - 1 == self.line_start;
            if is_empty && self.headers_start > 0 {
                let HeadScanner { headers_start, line_start, .. } = std::mem::take(self);
                return Ok(Some(Head { bytes: line_feed + 1, lines: headers_start..line_start }));
            }
            if !is_empty && self.headers_start == 0 {
                self.headers_start = line_feed + 1;
            }
            self.scanned = line_feed + 1;
            self.line_start = line_feed + 1;
        }
        self.scanned = window.len();
        match (buf.len() >= limits.header_bytes_max, self.headers_start > 0) {
            (true, true) => Err(Error::HeadTooLarge),
            (true, false) => Err(Error::TargetTooLong),
            (false, _) => Ok(None),
        }
    }
}

/// The HTTP version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// The headers of a parsed head, in order. Names are compared case-insensitively.
#[derive(Debug, Clone, Copy)]
pub struct Headers<'b> {
    /// Invariant: header lines that httparse has accepted, each ended by CRLF.
    lines: &'b [u8],
    names: Names,
}

/// Bit set of the header names that occur. A request is asked for some twenty names, most of which are
/// absent. Searching for them took 10 % of the instructions of a connection that opens and closes, and more
/// with each header that browsers add.
#[derive(Debug, Clone, Copy, Default)]
struct Names(u64);

impl Names {
    fn of(headers: &[httparse::Header<'_>]) -> Self {
        Names(headers.iter().fold(0, |names, header| names | Self::bit(header.name)))
    }

    /// Returns the bit of a name. Names that differ only in case share a bit.
    fn bit(name: &str) -> u64 {
        let ends = name.as_bytes().first().zip(name.as_bytes().last());
        let ends =
            ends.map_or(0, |(first, last)| usize::from(first | 0x20) * 5 + usize::from(last | 0x20) * 11);
        1 << ((name.len() * 7 + ends) % 64)
    }

    fn may_have(self, name: &str) -> bool {
        self.0 & Self::bit(name) != 0
    }
}

impl<'b> Headers<'b> {
    /// Iterates over the name and value of each header.
    pub fn iter(self) -> impl Iterator<Item = (&'b str, &'b [u8])> {
        self.lines().filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            Some((str::from_utf8(&line[..colon]).ok()?, trim(&line[colon + 1..])))
        })
    }

    /// Iterates over the lines without their ends.
    fn lines(self) -> impl Iterator<Item = &'b [u8]> {
        let mut rest = self.lines;
        std::iter::from_fn(move || {
            let end = memchr::memchr(b'\n', rest)?;
            let (line, next) = (&rest[..end], &rest[end + 1..]);
            rest = next;
            Some(line.strip_suffix(b"\r").unwrap_or(line))
        })
    }

    /// Iterates over the values of all headers with this name.
    #[inline]
    pub fn all<'n>(self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'b, 'n> {
        let lines = if self.names.may_have(name) { self.lines } else { b"" };
        // Compares the name without searching for the colon first. A request's headers are searched some
        // twenty times, and looking for the colon took 12 % of the instructions of a connection that opens
        // and closes.
        Headers { lines, ..self }.lines().filter_map(|line| {
            let (other, value) = line.split_at_checked(name.len())?;
            other.eq_ignore_ascii_case(name.as_bytes()).then(|| value.strip_prefix(b":").map(trim))?
        })
    }
}

/// Returns the first value of a header in a partly received head, which may be malformed. Considers complete
/// lines only, except the first line. Use it only to answer an error.
pub fn find_header<'b>(received: &'b [u8], name: &'b str) -> Option<&'b [u8]> {
    let first_line = memchr::memchr(b'\n', received)?;
    let lines = &received[first_line + 1..];
    Headers { lines, names: Names(u64::MAX) }.all(name).next()
}

/// The head of a request. Small and `Copy`; it borrows the head's bytes.
#[derive(Debug, Clone, Copy)]
pub struct Request<'b> {
    method: &'b str,
    target: &'b str,
    base: &'b str,
    path: &'b str,
    query: &'b str,
    authority: &'b str,
    message: Message<'b>,
}

/// The part that requests and responses share.
#[derive(Debug, Clone, Copy)]
pub struct Message<'b> {
    headers: Headers<'b>,
    framing: Framing,
}

/// Framing information from the headers.
#[derive(Debug, Clone, Copy)]
struct Framing {
    version: Version,
    keep_alive: bool,
    chunked: bool,
    length: Option<u64>,
    /// `Connection` lists `upgrade`.
    connection_upgrade: bool,
    /// `Upgrade` lists `websocket`.
    upgrade_websocket: bool,
}

impl<'b> Message<'b> {
    /// Returns the HTTP version.
    pub fn version(&self) -> Version {
        self.framing.version
    }

    /// Returns all headers.
    pub fn headers(&self) -> Headers<'b> {
        self.headers
    }

    /// Returns the value of the first header with this name.
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.headers.all(name).next()
    }

    /// Returns the value of the first header with this name, if it is UTF-8.
    pub fn header_str(&self, name: &str) -> Option<&'b str> {
        self.header(name).and_then(|value| str::from_utf8(value).ok())
    }

    /// Returns `true` if the connection accepts another request after this message (RFC 9112 section 9.3),
    /// unless its body runs until close.
    pub fn keep_alive(&self) -> bool {
        self.framing.keep_alive
    }

    /// Returns `true` if `Connection` lists `upgrade`.
    pub fn connection_has_upgrade(&self) -> bool {
        self.framing.connection_upgrade
    }

    /// Returns `true` if `Upgrade` lists `websocket`.
    pub fn upgrade_has_websocket(&self) -> bool {
        self.framing.upgrade_websocket
    }
}

impl<'b> Deref for Request<'b> {
    type Target = Message<'b>;

    fn deref(&self) -> &Message<'b> {
        &self.message
    }
}

impl<'b> Deref for Response<'b> {
    type Target = Message<'b>;

    fn deref(&self) -> &Message<'b> {
        &self.message
    }
}

impl<'b> Request<'b> {
    /// Returns the method as sent (methods are case-sensitive).
    pub fn method(&self) -> &'b str {
        self.method
    }

    /// Returns the target as sent.
    pub fn target(&self) -> &'b str {
        self.target
    }

    /// Returns the target's path below [`Self::base`], not decoded. It starts with `/`, except for the targets of `CONNECT`
    /// (`""`) and `OPTIONS *`.
    pub fn path(&self) -> &'b str {
        self.path
    }

    /// Returns the prefix that [`Self::below`] has removed from the path; `""` without one.
    pub fn base(&self) -> &'b str {
        self.base
    }

    /// Returns the request with the prefix `base`, such as `/rt`, removed from its path. `/rt` itself becomes `/`. Bytes are
    /// compared, so no other spelling counts. The path of a request that isn't below `base` becomes `""`.
    #[must_use]
    pub fn below(self, base: &str) -> Self {
        match self.path.split_at_checked(base.len()) {
            _ if base.is_empty() => self,
            Some((begin, "")) if begin == base => Self { base: begin, path: "/", ..self },
            Some((begin, rest)) if begin == base && rest.starts_with('/') => {
                Self { base: begin, path: rest, ..self }
            }
            _ => Self { base: self.path, path: "", ..self },
        }
    }

    /// Returns the target's query, not decoded and without `?`; `""` if the target has none.
    pub fn query(&self) -> &'b str {
        self.query
    }

    /// Returns host and port: from the target if it is absolute (RFC 9112 section 3.2.2), otherwise from
    /// `Host`; `""` if the request has neither.
    pub fn authority(&self) -> &'b str {
        self.authority
    }

    /// Returns `true` if the peer waits for `100 Continue` before it sends the body (RFC 9110 section
    /// 10.1.1).
    pub fn expects_continue(&self) -> bool {
        self.framing.version == Version::Http11
            && self.body() != BodyKind::Empty
            && self.header("expect").is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
    }

    /// Returns the rule that ends the body. Never [`BodyKind::UntilClose`].
    pub fn body(&self) -> BodyKind {
        match (self.framing.chunked, self.framing.length) {
            (true, _) => BodyKind::Chunked,
            (false, None | Some(0)) => BodyKind::Empty,
            (false, Some(bytes)) => BodyKind::Length(bytes),
        }
    }
}

/// The head of a response. Small and `Copy`; it borrows the head's bytes.
#[derive(Debug, Clone, Copy)]
pub struct Response<'b> {
    status: u16,
    message: Message<'b>,
}

impl Response<'_> {
    /// Returns the status, 100 to 999.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the rule that ends the body (RFC 9112 section 6.3). `to_head` is `true` if the request's
    /// method was HEAD.
    pub fn body(&self, to_head: bool) -> BodyKind {
        let bodiless = to_head || matches!(self.status, 100..=199 | 204 | 304);
        match (self.framing.chunked, self.framing.length) {
            _ if bodiless => BodyKind::Empty,
            (true, _) => BodyKind::Chunked,
            (false, Some(0)) => BodyKind::Empty,
            (false, Some(bytes)) => BodyKind::Length(bytes),
            (false, None) => BodyKind::UntilClose,
        }
    }
}

/// Parses one complete request head, as [`HeadScanner`] delimits it.
///
/// # Errors
/// Any [`Error`]. The server answers with its [`Error::status`] and closes the connection.
pub fn parse_request<'b>(head: &'b [u8], limits: &Limits) -> Result<Request<'b>, Error> {
    parse_lines(head, check_lines(head, limits)?, limits)
}

/// Parses a head with these header lines.
fn parse_lines<'b>(head: &'b [u8], lines: &'b [u8], limits: &Limits) -> Result<Request<'b>, Error> {
    let mut table = [const { MaybeUninit::uninit() }; HEADERS_CAPACITY];
    let table = &mut table[..limits.headers_max.min(HEADERS_CAPACITY)];
    let mut parsed = httparse::Request::new(&mut []);
    let outcome =
        httparse::ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, head, table);
    complete(outcome, head.len(), Error::BadRequestLine)?;
    let (method, target) = parsed.method.zip(parsed.path).ok_or(Error::Incomplete)?;
    let (framing, host) = Framing::read(version(parsed.version)?, parsed.headers)?;
    let names = Names::of(parsed.headers);
    let host = match host {
        Host::One(value) => value,
        Host::None if framing.version == Version::Http10 => "",
        Host::None | Host::Many => return Err(Error::BadHost),
    };
    let Target { authority, path, query } = split_target(method, target)?;
    let authority = authority.unwrap_or(host);
    let message = Message { headers: Headers { lines, names }, framing };
    Ok(Request { method, target, base: "", path, query, authority, message })
}

/// Parses one complete response head, as [`HeadScanner`] delimits it.
///
/// # Errors
/// Any [`Error`]. The connection can't be used any longer.
pub fn parse_response<'b>(head: &'b [u8], limits: &Limits) -> Result<Response<'b>, Error> {
    let lines = check_lines(head, limits)?;
    let mut table = [const { MaybeUninit::uninit() }; HEADERS_CAPACITY];
    let table = &mut table[..limits.headers_max.min(HEADERS_CAPACITY)];
    let mut parsed = httparse::Response::new(&mut []);
    let outcome =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, head, table);
    complete(outcome, head.len(), Error::BadStatusLine)?;
    let status = parsed.code.filter(|&code| code >= 100).ok_or(Error::BadStatusLine)?;
    let (framing, _) = Framing::read(version(parsed.version)?, parsed.headers)?;
    let headers = Headers { lines, names: Names::of(parsed.headers) };
    Ok(Response { status, message: Message { headers, framing } })
}

/// Checks that every line ends with CRLF and that the head ends at its first empty line (ignoring empty lines
/// before the first line). Returns the header lines.
fn check_lines<'b>(head: &'b [u8], limits: &Limits) -> Result<&'b [u8], Error> {
    if head.len() > limits.header_bytes_max {
        return Err(Error::HeadTooLarge);
    }
    let (mut line_start, mut headers_start) = (0, None);
    for line_feed in memchr::memchr_iter(b'\n', head) {
        if line_feed == 0 || head[line_feed - 1] != b'\r' {
            return Err(Error::BareLineFeed);
        }
        let is_empty = line_feed - 1 == line_start;
        match headers_start {
            None if !is_empty => headers_start = Some(line_feed + 1),
            Some(start) if is_empty => {
                let ends_here = line_feed + 1 == head.len();
                return if ends_here { Ok(&head[start..line_start]) } else { Err(Error::Incomplete) };
            }
            _ => {}
        }
        line_start = line_feed + 1;
    }
    Err(Error::Incomplete)
}

fn complete(outcome: httparse::Result<usize>, length: usize, in_first_line: Error) -> Result<(), Error> {
    match outcome {
        Ok(httparse::Status::Complete(end)) if end == length => Ok(()),
        Ok(_) => Err(Error::Incomplete),
        Err(httparse::Error::HeaderName | httparse::Error::HeaderValue) => Err(Error::BadHeader),
        Err(httparse::Error::TooManyHeaders) => Err(Error::TooManyHeaders),
        Err(httparse::Error::Version) => Err(Error::UnsupportedVersion),
        Err(httparse::Error::NewLine | httparse::Error::Status | httparse::Error::Token) => {
            Err(in_first_line)
        }
    }
}

fn version(minor: Option<u8>) -> Result<Version, Error> {
    match minor {
        Some(0) => Ok(Version::Http10),
        Some(1) => Ok(Version::Http11),
        _ => Err(Error::UnsupportedVersion),
    }
}

enum Host<'b> {
    None,
    One(&'b str),
    Many,
}

impl Framing {
    fn read<'b>(version: Version, headers: &[httparse::Header<'b>]) -> Result<(Framing, Host<'b>), Error> {
        let (mut length, mut coding) = (None, None);
        let (mut close, mut keep_alive) = (false, false);
        let (mut connection_upgrade, mut upgrade_websocket) = (false, false);
        let mut host = Host::None;
        for header in headers {
            let name = header.name;
            if name.eq_ignore_ascii_case("host") {
                host = match host {
                    Host::None => Host::One(host_value(header.value)?),
                    Host::One(_) | Host::Many => Host::Many,
                };
            } else if name.eq_ignore_ascii_case("content-length") {
                // RFC 9112 section 6.3 allows a recipient to refuse repetitions even if their values agree.
                if length.replace(decimal(header.value)?).is_some() {
                    return Err(Error::BadContentLength);
                }
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                // With several lines, the last one decides which coding is final.
                let this = transfer_coding(header.value)?;
                coding = match coding {
                    None => Some(this),
                    Some(Coding::Chunked) => return Err(Error::BadTransferEncoding),
                    Some(Coding::Other) if this == Coding::Chunked => {
                        return Err(Error::UnsupportedTransferCoding);
                    }
                    Some(Coding::Other) => Some(Coding::Other),
                };
            } else if name.eq_ignore_ascii_case("connection") {
                for token in tokens(header.value) {
                    close |= token.eq_ignore_ascii_case("close");
                    keep_alive |= token.eq_ignore_ascii_case("keep-alive");
                    connection_upgrade |= token.eq_ignore_ascii_case("upgrade");
                }
            } else if name.eq_ignore_ascii_case("upgrade") {
                upgrade_websocket |=
                    tokens(header.value).any(|token| token.eq_ignore_ascii_case("websocket"));
            }
        }
        match (coding, length, version) {
            (Some(_), Some(_), _) => return Err(Error::ConflictingLength),
            (Some(Coding::Other), None, _) | (Some(_), None, Version::Http10) => {
                return Err(Error::BadTransferEncoding);
            }
            _ => {}
        }
        let keep_alive = !close && (keep_alive || version == Version::Http11);
        let chunked = coding.is_some();
        let framing = Framing { version, keep_alive, chunked, length, connection_upgrade, upgrade_websocket };
        Ok((framing, host))
    }
}

/// The final coding of one Transfer-Encoding line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    Other,
}

fn transfer_coding(value: &[u8]) -> Result<Coding, Error> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(Coding::Chunked);
    }
    let mut codings =
        value.split(|&byte| byte == b',').map(trim).filter(|coding| !coding.is_empty()).peekable();
    let mut last = None;
    while let Some(coding) = codings.next() {
        let chunked = coding.eq_ignore_ascii_case(b"chunked");
        if chunked && codings.peek().is_some() {
            return Err(Error::BadTransferEncoding);
        }
        if chunked && last.is_some() {
            return Err(Error::UnsupportedTransferCoding);
        }
        last = Some(if chunked { Coding::Chunked } else { Coding::Other });
    }
    last.ok_or(Error::BadTransferEncoding)
}

/// Reads one decimal number below 2^63, without a sign, not a list.
fn decimal(value: &[u8]) -> Result<u64, Error> {
    // 19 digits fit into 64 bits, so the number can't overflow.
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return Err(Error::BadContentLength);
    }
    let number = value.iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit - b'0'));
    if number <= i64::MAX as u64 { Ok(number) } else { Err(Error::BadContentLength) }
}

/// Checks for the characters of RFC 3986 `host [":" port]`, without user information. Empty is allowed.
fn host_value(value: &[u8]) -> Result<&str, Error> {
    const ALLOWED: [bool; 256] = table(b"-._~%!$&'()*+;=:[]");
    if value.iter().all(|byte| ALLOWED[usize::from(*byte)]) {
        str::from_utf8(value).map_err(|_| Error::BadHost)
    } else {
        Err(Error::BadHost)
    }
}

struct Target<'b> {
    /// Host and port; `Some` only in absolute and authority form.
    authority: Option<&'b str>,
    path: &'b str,
    query: &'b str,
}

/// Splits a target of the four forms in RFC 9112 section 3.2: origin, absolute, authority (CONNECT) and
/// asterisk (OPTIONS).
fn split_target<'b>(method: &str, target: &'b str) -> Result<Target<'b>, Error> {
    if !target.is_ascii() || target.contains('#') {
        return Err(Error::BadTarget);
    }
    if method == "CONNECT" {
        host_value(target.as_bytes()).map_err(|_| Error::BadTarget)?;
        return Ok(Target { authority: Some(target), path: "", query: "" });
    }
    if target == "*" && method == "OPTIONS" {
        return Ok(Target { authority: None, path: "*", query: "" });
    }
    let (authority, rest) = if target.starts_with('/') {
        (None, target)
    } else {
        let (scheme, rest) = target.split_once("://").ok_or(Error::BadTarget)?;
        if !["http", "https", "ws", "wss"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(Error::BadTarget);
        }
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        host_value(authority.as_bytes()).map_err(|_| Error::BadTarget)?;
        if authority.is_empty() {
            return Err(Error::BadTarget);
        }
        (Some(authority), rest)
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    Ok(Target { authority, path: if path.is_empty() { "/" } else { path }, query })
}
