//! Published attacks on Engine.IO and Socket.IO servers and clients, as far as they concern size and time, each against
//! the crate's public interface. Texts that are refused are in the unit tests of the parsers. See `threats.rs` for WebSocket and HTTP.

use stentor_json as json;
use stentor_wire::engineio::{self, PacketKind, PayloadDecoder, PayloadFormat, decode_jsonp_form};
use stentor_wire::socketio::{Body, Decoder, Error, Limits, Role, Version};

const BOTH: [Version; 2] = [Version::V4, Version::V5];

/// Sides under attack: a server and a client of either version.
fn victims() -> impl Iterator<Item = Decoder> {
    BOTH.into_iter().flat_map(|version| [Role::Server, Role::Client].map(|role| Decoder::new(version, role)))
}

/// The attack is refused with its first text, and nothing of it is held.
fn refused(text: &str, error: Error) {
    for mut victim in victims() {
        assert_eq!(victim.text(text, &Limits::default()), Err(error), "{text}");
        assert_eq!(victim.held_bytes(), 0);
        assert!(!victim.is_mid_packet());
    }
}

/// CVE-2026-69185: a binary packet without attachments, after which whatever comes would be gathered for ever.
#[test]
fn binary_packet_without_attachments() {
    for text in [r#"50-["a"]"#, r#"500-["a"]"#, r#"5-["a"]"#, r#"5["a"]"#, "60-1[]"] {
        refused(text, Error::BadAttachmentCount);
    }
    for mut victim in victims() {
        for _ in 0..1000 {
            assert_eq!(
                victim.binary(&[0; 1000], &Limits::default()).err(),
                Some(Error::UnexpectedAttachment)
            );
            assert_eq!(victim.held_bytes(), 0);
        }
    }
}

/// CVE-2026-33151: very many attachments are announced and never come, or are all sent.
#[test]
fn huge_attachment_counts() {
    for count in ["11", "1000000", "4294967297", "18446744073709551617", &"9".repeat(1_000_000)] {
        refused(&format!("5{count}-[\"a\"]"), Error::TooManyAttachments);
    }
    // Within the bounds: memory follows what arrives, and ends at the limit.
    let limits = Limits { attachments_max: usize::MAX, ..Limits::default() };
    for mut victim in victims() {
        assert_eq!(victim.text(&format!("5{}-[\"a\"]", i64::MAX), &limits), Ok(None));
        assert!(victim.held_bytes() <= 512, "{}", victim.held_bytes());
        let mut sent = 0;
        let error = loop {
            match victim.binary(&[7; 1000], &limits) {
                Ok(assembled) => assert!(assembled.is_none()),
                Err(error) => break error,
            }
            sent += 1000;
            assert!(victim.held_bytes() <= 3 * sent + 1024, "{} for {sent}", victim.held_bytes());
        };
        assert_eq!((error, victim.held_bytes()), (Error::TooBig, 0));
        assert!(sent <= limits.packet_bytes_max);
    }
}

/// CVE-2020-36049: large packets, and large ones in many pieces, cost time as their length. Quadratic work would take
/// minutes for these sizes.
#[test]
fn large_packets_cost_linear_time() {
    let limits = Limits { packet_bytes_max: usize::MAX, attachments_max: 1_000_000 };
    let n = 100_000;
    for inner in ["\\\\".repeat(n), "\\u0061".repeat(n), "{".repeat(n), "😀".repeat(n)] {
        for mut victim in victims() {
            let text = format!("51-[\"{inner}\",\"{inner}\"]");
            victim.text(&text, &limits).unwrap();
        }
    }
    for item in [
        "[],",
        "{},",
        "{\"num\":0,\"a\":{\"num\":0,\"a\":[]}},",
        r#"{"_placeholder":true,"num":0},"#,
        " 1 ,",
        "\"_placeholder\",",
        r#"{"_placeholder":false},"#,
        r#"{"\u005fplaceholder":1},"#,
    ] {
        for mut victim in victims() {
            let text = format!("51-[\"a\",{}0]", item.repeat(n / item.len()));
            victim.text(&text, &limits).unwrap();
            let Ok(Some(assembled)) = victim.binary(b"x", &limits) else { panic!() };
            let Body::Event(event) = assembled.packet().body else { panic!() };
            assert_eq!(event.arguments.iter().count(), n / item.len() + 1);
        }
    }
    for mut victim in victims() {
        victim.text(r#"520000-["a"]"#, &limits).unwrap();
        let assembled = (0..20_000).find_map(|_| {
            victim.binary(b"0123456789", &limits).unwrap().map(|done| done.packet().body == Body::Disconnect)
        });
        assert_eq!(assembled, Some(false));
    }
    refused(&format!("2{}", "0".repeat(n)), Error::MissingPayload);
    refused(&format!("2/{},", "a".repeat(n)), Error::MissingPayload);
}

/// No id: JSON that is nested so deeply that a recursive reader runs out of stack.
#[test]
fn deep_json() {
    for open in ["[", "{\"a\":", "[{\"a\":["] {
        for head in ["2[\"a\",", "31[", "51-[\"a\",", "0{\"a\":"] {
            refused(&format!("{head}{}", open.repeat(100_000)), Error::TooDeep);
        }
    }
    assert_eq!(json::check(&"[".repeat(1_000_000)), Err(json::Error::TooDeep(json::DEPTH_MAX)));
}

/// No id: payloads of very many packets of next to nothing, or of declared lengths that nothing follows.
#[test]
fn payloads_of_crumbs() {
    for (format, packet) in [
        (PayloadFormat::Separated, &b"6\x1e"[..]),
        (PayloadFormat::Counted, b"1:6"),
        (PayloadFormat::Counted, b"0:"),
        (PayloadFormat::Octets, b"\0\x01\xff6"),
    ] {
        let body = packet.repeat(1_000_000);
        let mut decoder = PayloadDecoder::new(format, &body, 1000).unwrap();
        let mut packets = 0;
        let error = loop {
            match decoder.next_packet() {
                Ok(Some(packet)) => assert_eq!(packet.kind, PacketKind::Noop),
                Ok(None) => panic!("it should end with an error"),
                Err(error) => break error,
            }
            packets += 1;
        };
        assert_eq!((error, error.status()), (engineio::Error::TooManyPackets, 413));
        assert!(packets <= 1000);
    }
    for body in [&b"99999999999999999999999:4"[..], b"4294967296:4", b"18446744073709551615:4"] {
        assert!(PayloadDecoder::new(PayloadFormat::Counted, body, 9).unwrap().next_packet().is_err());
    }
    let lengths = [&[1u8][..], &[9; 12], &[255, 4]].concat();
    let error = PayloadDecoder::new(PayloadFormat::Octets, &lengths, 9).unwrap().next_packet().unwrap_err();
    assert_eq!(error, engineio::Error::Truncated);
    // Forms: fields, escapes and backslashes.
    for piece in ["d&", "a=b&", "%5C", "%5Cn", "\\\\n", "%", "+"] {
        let _ = decode_jsonp_form(format!("d={}", piece.repeat(100_000)).as_bytes());
    }
}
