//! Events, acknowledgements and messages to one session, encoded as frames and as records.

use super::*;
use crate::encode::records;
use crate::message::Envelope;

#[test]
fn packets() {
    fn check(write: impl Fn(Encoding, &mut Vec<u8>), expect: &[&str]) {
        let encoding = |framing| Encoding::engine_io(framing, Envelope::SocketIo, false);
        let mut out = Vec::new();
        write(encoding(EngineFraming::Record), &mut out);
        let got: Vec<_> = records(&out).map(|(_, packet)| std::str::from_utf8(packet).unwrap()).collect();
        assert_eq!(got, expect);
        let mut framed = Vec::new();
        write(encoding(EngineFraming::V4), &mut framed);
        let mut wanted = Vec::new();
        for (kind, packet) in records(&out) {
            let opcode = if kind == TEXT { Opcode::Text } else { Opcode::Binary };
            ws::encode(&mut wanted, opcode, packet, false, None);
        }
        assert_eq!(framed, wanted);
    }
    let none = Arguments::default();
    let two = Arguments { json: r#"1,{"a":2}"#, attachments: &[] };
    let bytes = [Bytes::from_static(b"xy")];
    let binary = Arguments { json: r#"{"_placeholder":true,"num":0}"#, attachments: &bytes };
    check(|e, out| e.event("/", out, "e", two, None), &[r#"42["e",1,{"a":2}]"#]);
    check(|e, out| e.event("/a", out, "e", none, Some(7)), &[r#"42/a,7["e"]"#]);
    check(|e, out| e.event("/", out, "\"", none, None), &[r#"42["\""]"#]);
    check(|e, out| e.ack("/a", out, 12, two), &[r#"43/a,12[1,{"a":2}]"#]);
    check(|e, out| e.ack("/", out, 0, none), &["430[]"]);
    check(|e, out| e.message("/", out, Message::Text("a\"b")), &[r#"42["message","a\"b"]"#]);
    let expect = [r#"451-["e",{"_placeholder":true,"num":0}]"#, "xy"];
    check(|e, out| e.event("/", out, "e", binary, None), &expect);
    check(|e, out| e.ack("/", out, 3, binary), &[r#"461-3[{"_placeholder":true,"num":0}]"#, "xy"]);
}
