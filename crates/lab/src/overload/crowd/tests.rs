use super::*;

#[test]
fn frames_are_cut_wherever_they_come_apart() {
    let mut stream = Vec::new();
    let payloads = [vec![b'a'; 5], vec![b'b'; 300], vec![b'c'; 70_000], Vec::new(), vec![b'd'; 1]];
    for payload in &payloads {
        encode(&mut stream, Opcode::Text, payload, false, None);
    }
    for piece_bytes in [1, 2, 3, 7, 1000, 1 << 20] {
        let (mut frame, mut kept, mut found) = (Frame::default(), Vec::new(), Vec::new());
        for piece in stream.chunks(piece_bytes) {
            let mut piece = piece;
            while frame.take(&mut piece, Some(&mut kept)) {
                assert_eq!((frame.header[0], frame.len), (0x81, kept.len() as u64));
                assert_eq!(frame.start, kept[..kept.len().min(BODY_AT)]);
                if let [.., one, two] = kept[..] {
                    assert_eq!(frame.end, [one, two]);
                }
                found.push(std::mem::take(&mut kept));
                frame.clear();
                if piece.is_empty() {
                    break;
                }
            }
        }
        assert_eq!(found, payloads, "in pieces of {piece_bytes}");
    }
}
