use super::*;

/// Makes a client's frame with deflated text.
fn deflated(text: &str) -> Vec<u8> {
    client_frame(0xc1, Deflater::new(6).deflate(text.as_bytes(), 15))
}

fn side_with_steps(inflate_bytes_max: usize, deliver_bytes_max: usize) -> Side {
    let mut side = Side::new(Role::Server, Some(DEFLATE), Limits::default());
    side.shared.set_steps(StepLimits { inflate_bytes_max, deliver_bytes_max });
    side
}

/// Calls `receive` once. Returns the number of consumed bytes, and the length of the delivered message.
fn receive(side: &mut Side, shared: &mut Shared, input: &[u8]) -> (usize, Option<usize>) {
    let mut input = input.to_vec();
    let received = side.connection.receive(shared, &mut input, &mut side.transmit);
    let message = received.event.map(|event| match event {
        Event::Message(message) => message.bytes().len(),
        other => panic!("{other:?}"),
    });
    (received.consumed, message)
}

#[test]
fn a_large_message_inflates_in_steps_and_later_input_waits() {
    let text = "1,".repeat(50_000);
    let mut side = side_with_steps(10_000, usize::MAX);
    let frame = deflated(&text);
    let input = [&frame[..], &client_frame(0x81, b"next")].concat();
    let mut shared = std::mem::replace(&mut side.shared, Shared::new(Limits::default()));
    assert_eq!(receive(&mut side, &mut shared, &input), (frame.len(), None));
    for step in 2..10 {
        assert!(side.connection.is_paused() && !side.connection.is_mid_message());
        assert!(side.connection.held_bytes() < 40_000 + step * 20_000);
        assert_eq!(receive(&mut side, &mut shared, &input[frame.len()..]), (0, None));
        assert_eq!(shared.take_stepped_bytes(), if step == 2 { 20_000 } else { 10_000 });
    }
    let message = loop {
        let (consumed, message) = receive(&mut side, &mut shared, &input[frame.len()..]);
        assert_eq!(consumed, 0);
        if let Some(message) = message {
            break message;
        }
    };
    assert_eq!(message, text.len());
    assert!(!side.connection.is_paused() && shared.is_step_slot_free());
    assert_eq!(side.connection.held_bytes(), 0);
    assert_eq!(receive(&mut side, &mut shared, &input[frame.len()..]).1, Some(4));
}

#[test]
fn one_message_is_half_inflated_at_a_time() {
    let text = "1,".repeat(50_000);
    let mut shared = Shared::new(Limits::default());
    shared.set_steps(StepLimits { inflate_bytes_max: 30_000, deliver_bytes_max: usize::MAX });
    let frame = deflated(&text);
    let [mut first, mut second] = [0, 1].map(|_| side_with_steps(0, 0));
    assert_eq!(receive(&mut first, &mut shared, &frame), (frame.len(), None));
    assert_eq!(receive(&mut second, &mut shared, &frame), (frame.len(), None));
    assert!(!first.connection.waits_for_step_slot() && second.connection.waits_for_step_slot());
    assert!(second.connection.held_bytes() < 2 * frame.len() + 300, "what was inflated isn't kept");
    // Small messages don't wait.
    let mut third = side_with_steps(0, 0);
    let small = deflated("small");
    assert_eq!(receive(&mut third, &mut shared, &small), (small.len(), Some(5)));
    for _ in 0..2 {
        assert_eq!(receive(&mut first, &mut shared, &[]), (0, None));
    }
    assert_eq!(receive(&mut first, &mut shared, &[]), (0, Some(text.len())));
    assert!(shared.is_step_slot_free());
    // The second connection takes the slot and releases it. The first connection then uses it for its next
    // message.
    assert_eq!(receive(&mut second, &mut shared, &[]), (0, None));
    assert!(!shared.is_step_slot_free());
    second.connection.leave_step_slot();
    assert!(shared.is_step_slot_free() && second.connection.waits_for_step_slot());
    assert_eq!(receive(&mut first, &mut shared, &frame), (frame.len(), None));
    drop(first);
    assert!(shared.is_step_slot_free(), "a connection that ends leaves its place");
    let lengths: Vec<_> = (0..4).map(|_| receive(&mut second, &mut shared, &[]).1).collect();
    assert_eq!(lengths, [None, None, None, Some(text.len())]);
}

#[test]
fn a_collected_message_is_delivered_when_the_slot_is_free() {
    let text = "x".repeat(100_000);
    let frame = client_frame(0x81, text.as_bytes());
    let mut shared = Shared::new(Limits::default());
    shared.set_steps(StepLimits { inflate_bytes_max: usize::MAX, deliver_bytes_max: 99_999 });
    let mut side = side_with_steps(0, 0);
    let (start, end) = frame.split_at(60_000);
    assert_eq!(receive(&mut side, &mut shared, start), (start.len(), None));
    assert!(side.connection.is_mid_message());
    assert_eq!(receive(&mut side, &mut shared, end), (end.len(), None));
    assert!(side.connection.is_paused() && shared.is_step_slot_free());
    shared.set_steps(StepLimits { inflate_bytes_max: 0, deliver_bytes_max: 100_000 });
    assert_eq!(receive(&mut side, &mut shared, &[]), (0, Some(100_000)));
    assert_eq!(shared.take_stepped_bytes(), 100_000);
}
