//! A client against a server: each decodes the other's output.

use super::client::{Observed, decode};
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn borrowed(texts: &[String]) -> Vec<&str> {
    texts.iter().map(|text| &**text).collect()
}

/// Evaluates a JavaScript string literal as a browser does, as far as frames need it.
fn script_string(literal: &str) -> String {
    let (raw, rest) = stentor_json::RawString::read(literal).unwrap();
    assert_eq!(rest, "");
    raw.unescape().into_owned()
}

/// Returns the text that reaches a client's frame parser.
fn unwrapped(wrapping: Wrapping, wrapped: &str) -> String {
    match wrapping {
        Wrapping::WebSocket => wrapped.to_owned(),
        Wrapping::Xhr => wrapped.strip_suffix('\n').unwrap().to_owned(),
        Wrapping::EventSource => {
            let mut decoder = crate::sse::Decoder::new(usize::MAX);
            let received = decoder.receive(wrapped.as_bytes()).unwrap();
            let Some(crate::sse::Decoded::Event { data, event: "message", .. }) = received.decoded else {
                panic!("{received:?}")
            };
            crate::http1::percent_decode(data).unwrap().into_owned()
        }
        Wrapping::HtmlFile => {
            let call = wrapped.strip_prefix("<script>\np(").unwrap();
            script_string(call.strip_suffix(");\n</script>\r\n").unwrap())
        }
        Wrapping::Jsonp => script_string(wrapped.strip_prefix('(').unwrap().strip_suffix(");\r\n").unwrap()),
    }
}

proptest! {
    #[test]
    fn server_frames_are_decoded_by_the_client(texts in vec("\\PC{0,20}|(?s).{0,20}", 0..5), code in any::<u16>(), reason in "(?s).{0,30}") {
        let borrowed = borrowed(&texts);
        for wrapping in Wrapping::ALL {
            for (frame, expect) in [
                (Frame::Open, Observed::Open),
                (Frame::Heartbeat, Observed::Heartbeat),
                (Frame::Messages(&borrowed), Observed::Messages(texts.clone())),
                (Frame::Close(Close { code, reason: &reason }), Observed::Close(code, reason.clone())),
            ] {
                let mut out = Vec::new();
                wrapping.write(&mut out, &frame);
                let text = unwrapped(wrapping, str::from_utf8(&out).unwrap());
                let seen = ServerFrame::parse(&text, &Limits::default()).map(Observed::from);
                prop_assert_eq!(seen, Ok(expect));
            }
        }
    }

    #[test]
    fn streams_are_decoded(frames in vec(vec("(?s).{0,20}", 0..4), 0..5), size in 1..40usize) {
        let mut out = Vec::new();
        answer::write_prelude(&mut out, Transport::XhrStreaming);
        for texts in &frames {
            Wrapping::Xhr.write(&mut out, &Frame::Messages(&borrowed(texts)));
        }
        let expect: Vec<Observed> = frames.into_iter().map(Observed::Messages).collect();
        prop_assert_eq!(decode(4096, out.chunks(size)), (expect, None));
    }

    #[test]
    fn client_messages_are_decoded_by_the_server(texts in vec("(?s).{0,40}", 0..5)) {
        let mut out = Vec::new();
        write_messages(&mut out, &borrowed(&texts));
        let body: Vec<_> = parse_body(&out, &Limits::default()).unwrap().collect();
        prop_assert_eq!(&body, &texts);
        let message: Vec<_> = parse_websocket(str::from_utf8(&out).unwrap(), &Limits::default()).unwrap().collect();
        prop_assert_eq!(&message, &texts);
    }

    /// Arbitrary input: an accepted payload is an array of strings, and reads the same after it is written
    /// again.
    #[test]
    fn arbitrary_input_causes_no_panic(text in "[\\[\\]\",\\\\ u0dD8a-c{}]{0,40}") {
        if let Ok(messages) = parse_body(text.as_bytes(), &Limits::default()) {
            let texts: Vec<String> = messages.map(|text| text.into_owned()).collect();
            let mut out = Vec::new();
            write_messages(&mut out, &borrowed(&texts));
            let again: Vec<_> = parse_body(&out, &Limits::default()).unwrap().collect();
            prop_assert_eq!(again, texts);
        }
    }
}
