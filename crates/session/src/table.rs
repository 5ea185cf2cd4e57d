//! The table of protocols: the only file that names all protocols. A protocol is a module of `crate::protocols`, and its
//! lines here.
//!
//! The lists are macros, because modules that protocols import are generated from them: the kinds of clients, the
//! encodings, and the dialects. A list with the parameter `$define` passes its entries to the macro of that name.

/// Protocols with routes, in the order in which their routes are tried.
macro_rules! routed_protocols {
    () => {
        [
            &crate::protocols::primus::Primus,
            &crate::protocols::ndjson::NdJson,
            &crate::protocols::upgrade::CustomProtocols,
            &crate::protocols::sockjs::SockJs,
        ]
    };
}

/// Dialects of WebSocket connections that have a session of their own.
macro_rules! dialects {
    ($define:ident) => {
        $define! {
            Plain(crate::protocols::dialect::Plain),
            SockJs(crate::protocols::sockjs::OnWebSocket),
            Primus(crate::protocols::primus::Pinging),
        }
    };
}

/// Clients that outlive their connections: kind, table, type.
macro_rules! client_kinds {
    ($define:ident) => {
        $define! {
            EngineIo, engineio, crate::protocols::engineio::Client;
            SockJs, sockjs, crate::protocols::sockjs::Client;
            NdJson, ndjson, crate::protocols::ndjson::Client;
        }
    };
}

/// Wires of protocols that write their messages in a form of their own.
macro_rules! own_wires {
    ($define:ident) => {
        $define! {
            PrimusText = crate::protocols::primus::Values { is_value: false },
            PrimusValue = crate::protocols::primus::Values { is_value: true },
            SockJsWebSocket = crate::protocols::sockjs::Frames::WEBSOCKET,
            SockJsXhr = crate::protocols::sockjs::Frames::XHR,
            SockJsEventSource = crate::protocols::sockjs::Frames::EVENT_SOURCE,
            SockJsHtmlFile = crate::protocols::sockjs::Frames::HTML_FILE,
            SockJsJsonp = crate::protocols::sockjs::Frames::JSONP,
            NdJson = crate::protocols::ndjson::Lines,
            LinkV4 = crate::protocols::link::Packets(crate::encode::EngineFraming::V4),
            LinkV3 = crate::protocols::link::Packets(crate::encode::EngineFraming::V3),
            LinkRecord = crate::protocols::link::Packets(crate::encode::EngineFraming::Record),
        }
    };
}
