//! Requests of an application's clients, described for its workers.

use crate::ports::{LinkHandshake, LinkQueued, LinkRefused};
use crate::protocols::request::RequestContext;
use stentor_wire::engineio::RequestError;
use stentor_wire::http1::{self, Version};

/// Reports that a request of an application's client is refused, if a worker listens to refused requests and the application has reports left. A client
/// can cause any number of refusals, so nothing is copied before.
pub(super) fn report_refused(cx: &RequestContext<'_>, error: RequestError, message: Option<&str>) {
    let Some(link) = cx.ex.options().link.as_ref().filter(|_| cx.engine.is_some()) else { return };
    let Some((app, _)) = link.apps.find(cx.request.path()).filter(|(app, _)| link.apps.take_report(*app))
    else {
        return;
    };
    let request = describe(cx);
    let parameter = |name: &str| {
        let found = request.query.iter().find(|pair| *pair.0 == *name);
        found.map(|(_, value)| &**value)
    };
    // The details are those of the package `engine.io`.
    let (name, value) = match error {
        RequestError::UnknownTransport => ("transport", parameter("transport").unwrap_or_default()),
        RequestError::UnknownSession => ("sid", parameter("sid").unwrap_or_default()),
        RequestError::BadHandshakeMethod => ("method", &*request.method),
        RequestError::BadRequest if parameter("sid").is_some() => ("name", "TRANSPORT_MISMATCH"),
        RequestError::BadRequest => ("name", "TRANSPORT_HANDSHAKE_ERROR"),
        RequestError::Forbidden => ("message", message.unwrap_or(error.message())),
        RequestError::UnsupportedVersion => ("protocol", parameter("EIO").unwrap_or_default()),
    };
    let message = match error {
        RequestError::UnsupportedVersion => "Unsupported protocol version",
        error => error.message(),
    };
    let context = (name, value.into());
    link.sink.report_refused(LinkRefused {
        app,
        code: error.code(),
        message,
        context,
        request: Box::new(request),
    });
}

/// The request, for the worker, without the properties of a session.
pub(super) fn describe(cx: &RequestContext<'_>) -> LinkHandshake {
    let request = cx.request;
    // Node decodes headers as Latin-1.
    let latin_1 =
        |value: &[u8]| -> Box<str> { value.iter().map(|byte| char::from(*byte)).collect::<String>().into() };
    let pairs = http1::query_pairs(request.query());
    let (proxy, has_user) = (&cx.ex.options().tokens.proxy, cx.checked_user().is_some());
    let is_shown = |name: &str| proxy.as_ref().is_none_or(|proxy| proxy.shows(name, has_user));
    let headers = request.headers().iter().filter(|(name, _)| is_shown(name));
    LinkHandshake {
        sid: Box::default(),
        protocol: 0,
        transport: "",
        method: request.method().into(),
        url: request.target().into(),
        http_version: if request.version() == Version::Http11 { "1.1" } else { "1.0" },
        headers: headers.map(|(name, value)| (name.into(), latin_1(value))).collect(),
        query: pairs.map(|(name, value)| (name.into(), value.into())).collect(),
        address: cx.client.ip.to_string().into(),
        port: cx.port,
        local_address: Box::default(),
        local_port: 0,
        encrypted: cx.client.is_secure,
        queued: LinkQueued::default(),
    }
}
