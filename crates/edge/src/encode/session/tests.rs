//! Packets to one session, as frames and as records.

use super::*;
use crate::encode::records;

const FRAME: EngineWriter = EngineWriter { version: Version::V4, target: FrameTarget::WebSocket };
const RECORD: EngineWriter = EngineWriter { version: Version::V4, target: FrameTarget::Poll };

#[test]
fn packets() {
    fn check(namespace: &str, write: impl Fn(Writer<'_>, &mut Vec<u8>), expect: &[&str]) {
        let mut out = Vec::new();
        write(Writer::SocketIo { engine: RECORD, namespace }, &mut out);
        let got: Vec<_> = records(&out).map(|(_, packet)| std::str::from_utf8(packet).unwrap()).collect();
        assert_eq!(got, expect);
        let mut framed = Vec::new();
        write(Writer::SocketIo { engine: FRAME, namespace }, &mut framed);
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
    check("/", |w, out| w.event(out, "e", two, None), &[r#"42["e",1,{"a":2}]"#]);
    check("/a", |w, out| w.event(out, "e", none, Some(7)), &[r#"42/a,7["e"]"#]);
    check("/", |w, out| w.event(out, "\"", none, None), &[r#"42["\""]"#]);
    check("/a", |w, out| w.ack(out, 12, two), &[r#"43/a,12[1,{"a":2}]"#]);
    check("/", |w, out| w.ack(out, 0, none), &["430[]"]);
    check("/", |w, out| w.message(out, Message::Text("a\"b")), &[r#"42["message","a\"b"]"#]);
    let expect = [r#"451-["e",{"_placeholder":true,"num":0}]"#, "xy"];
    check("/", |w, out| w.event(out, "e", binary, None), &expect);
    check("/", |w, out| w.ack(out, 3, binary), &[r#"461-3[{"_placeholder":true,"num":0}]"#, "xy"]);
}
