//! SockJS and Server-Sent Events.

use stentor_wire::sockjs::{
    Frame, FrameDecoder, Limits, PART_BYTES_MAX, Resource, ServerFrame, Wrapping, jsonp_payload, parse_body,
    parse_path, parse_websocket, write_messages,
};
use stentor_wire::{primus, sse};

use crate::{parts, pieces};

/// Checks a path after the prefix.
pub fn sockjs_path(data: &[u8]) {
    let Ok(path) = str::from_utf8(data) else { return };
    let Some(route) = parse_path(path) else { return };
    assert!(!route.resource.methods().is_empty());
    if let Resource::Session { server, session, .. } = route.resource {
        for id in [server, session] {
            assert!(!id.is_empty() && id.len() <= PART_BYTES_MAX && !id.contains(['/', '.']));
        }
    }
    if let Some(key) = route.key {
        assert!(!key.split('/').any(str::is_empty));
    }
    if !path.ends_with('/') {
        assert_eq!(parse_path(&format!("{path}/")), Some(route));
    }
}

/// Checks messages from clients, and the frames that servers make of them.
pub fn sockjs_incoming(data: &[u8]) {
    let Some((flags, cuts, bytes)) = parts(data) else { return };
    let limits = Limits { messages_max: if flags & 1 == 0 { 10_000 } else { 3 } };
    let form = jsonp_payload((flags & 2 != 0).then_some("application/x-www-form-urlencoded"), bytes);
    let payload = form.as_deref().unwrap_or(bytes);
    let Ok(messages) = parse_body(payload, &limits) else {
        server_frames(bytes, cuts, limits);
        return;
    };
    let text = str::from_utf8(payload).expect("what is accepted is UTF-8");
    assert_eq!(parse_websocket(text, &limits).map(|messages| messages.len()), Ok(messages.len()));
    let (mut in_scratch, mut scratch) = (messages.clone(), String::new());
    let texts: Vec<String> = messages.map(|text| text.into_owned()).collect();
    assert!(texts.len() <= limits.messages_max);
    for text in &texts {
        assert_eq!(in_scratch.next_in(&mut scratch), Some(&**text));
    }
    let borrowed: Vec<&str> = texts.iter().map(|text| &**text).collect();
    let mut out = Vec::new();
    write_messages(&mut out, &borrowed);
    assert!(parse_body(&out, &limits).is_ok_and(|again| again.eq(borrowed.iter().copied())));
    for wrapping in Wrapping::ALL {
        out.clear();
        wrapping.write(&mut out, &Frame::Messages(&borrowed));
        let inner = wrapping.messages_of(&out).expect("a frame of messages");
        assert!(inner.iter().all(|byte| *byte >= 0x20));
    }
    out.clear();
    Wrapping::Xhr.write(&mut out, &Frame::Messages(&borrowed));
    server_frames(&out, cuts, limits);
}

/// Checks that a server's stream decodes to the same frames in pieces.
fn server_frames(stream: &[u8], cuts: &[u8], limits: Limits) {
    let run = |pieces: &[&[u8]]| {
        let mut decoder = FrameDecoder::new(500, limits);
        let mut seen = Vec::new();
        for piece in pieces {
            let mut at = 0;
            while at < piece.len() {
                match decoder.receive(&piece[at..]) {
                    Ok(received) => {
                        assert!(received.consumed > 0 && received.consumed <= piece.len() - at);
                        at += received.consumed;
                        seen.extend(received.frame.map(|frame| match frame {
                            ServerFrame::Messages(messages) => format!("{:?}", messages.collect::<Vec<_>>()),
                            other => format!("{other:?}"),
                        }));
                    }
                    Err(error) => return (seen, Some(error)),
                }
            }
        }
        (seen, None)
    };
    assert_eq!(run(&pieces(stream, cuts)), run(&[stream]));
}

/// Checks an event stream, its ids, and Primus messages, whose kind depends on their text alone.
pub fn sse_decoder(data: &[u8]) {
    let Some((flags, cuts, bytes)) = parts(data) else { return };
    let event_bytes_max = if flags & 1 == 0 { 1_000_000 } else { 50 };
    let run = |pieces: &[&[u8]]| {
        let mut decoder = sse::Decoder::new(event_bytes_max);
        let mut seen = Vec::new();
        for piece in pieces {
            let mut at = 0;
            while at < piece.len() {
                match decoder.receive(&piece[at..]) {
                    Ok(received) => {
                        assert!(received.consumed > 0 && received.consumed <= piece.len() - at);
                        at += received.consumed;
                        // The writer leaves out NUL.
                        if let Some(sse::Decoded::Event { event, data, id }) = received.decoded
                            && !event.contains('\0')
                        {
                            // An event that is written again decodes to the same event.
                            let mut out = Vec::new();
                            sse::write_event(
                                &mut out,
                                &sse::Event { id: Some(id), event: Some(event), data },
                            );
                            let mut again = sse::Decoder::new(usize::MAX);
                            let again = again
                                .receive(&out)
                                .map(|again| again.decoded.map(|item| format!("{item:?}")));
                            assert_eq!(again, Ok(received.decoded.map(|item| format!("{item:?}"))));
                            let positions = sse::Positions::parse(id);
                            assert!(positions.iter().count() <= sse::POSITIONS_MAX);
                        }
                        seen.extend(received.decoded.map(|decoded| format!("{decoded:?}")));
                    }
                    Err(error) => return (seen, Some(error)),
                }
            }
        }
        (seen, None)
    };
    assert_eq!(run(&pieces(bytes, cuts)), run(&[bytes]));
    if let Ok(text) = str::from_utf8(bytes) {
        let received = primus::from_client(text);
        let is_message = matches!(received, primus::FromClient::Text(_) | primus::FromClient::Message(_));
        assert_eq!(is_message, matches!(primus::from_server(text), primus::FromServer::Message(_)));
        assert_eq!(is_message, !primus::is_reserved(text));
        primus::write_message(&mut Vec::new(), text);
    }
}
