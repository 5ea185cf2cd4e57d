//! A core needs an encoding that another core is making. It continues with other work and checks again later.

use bytes::Bytes;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use stentor_hub::{
    Body, Data, Document, Emit, Encoder, FeedState, FormatId, Hub, Key, LiveBytes, OWN_ENCODING_BYTES_MAX,
    Options, Policy, Publication, Room, SessionId, Topic,
};

const FORMAT: FormatId = FormatId(0);
/// A format in which no publication can be encoded.
const MUTE: FormatId = FormatId(1);

/// The work of other cores during the first core's encoding. Runs once.
type Meanwhile = Rc<RefCell<Option<Box<dyn FnOnce()>>>>;

/// Encodes a publication as its body's length and the encoding core's number.
struct Lengths {
    core: usize,
    meanwhile: Meanwhile,
}

impl Encoder for Lengths {
    type Frame = (usize, usize);

    fn encode(&self, format: FormatId, publication: &Publication<Self::Frame>) -> Option<Self::Frame> {
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile();
        }
        let bytes = match publication.body() {
            Body::Snapshot { document, .. } => document.body.len(),
            body => body.len(),
        };
        (format != MUTE).then_some((bytes, self.core))
    }

    fn len(frame: &Self::Frame) -> usize {
        frame.0
    }
}

#[derive(Clone)]
struct Core(Rc<RefCell<Hub<Lengths>>>);

impl Core {
    /// Takes a session's frames. Returns each frame's length and the core that made it.
    fn take(&self, session: SessionId) -> Vec<(usize, usize)> {
        let mut taken = Vec::new();
        self.0.borrow_mut().take(session, usize::MAX, usize::MAX, |_, frame| taken.push(*frame));
        self.0.borrow_mut().handle_sent(session);
        assert!(self.0.borrow().counters().balanced());
        taken
    }

    fn ready(&self) -> Vec<SessionId> {
        let mut hub = self.0.borrow_mut();
        std::iter::from_fn(|| hub.poll_ready()).map(|(session, _)| session).collect()
    }

    fn subscribe(&self, format: FormatId, topic: &Topic, policy: Policy) -> SessionId {
        let mut hub = self.0.borrow_mut();
        let session = hub.handle_open(format, 0);
        hub.handle_subscribe(session, topic, policy, None).unwrap();
        session
    }
}

/// Makes three cores, and a slot for work during the first core's encoding.
fn cores() -> ([Core; 3], Meanwhile) {
    let (live, meanwhile) = (LiveBytes::default(), Meanwhile::default());
    let core = |core| {
        let meanwhile = if core == 0 { meanwhile.clone() } else { Meanwhile::default() };
        let options = Options { core, cores: 3, live: live.clone(), ..Options::default() };
        Core(Rc::new(RefCell::new(Hub::new(options, Lengths { core, meanwhile }))))
    };
    ([core(0), core(1), core(2)], meanwhile)
}

/// Passes on all messages between cores.
fn run_until_idle(cores: &[Core; 3]) {
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (from, to) in (0..9).map(|n| (n / 3, n % 3)).filter(|(from, to)| from != to) {
            let dispatch = cores[from].0.borrow_mut().outgoing(to).pop_front();
            if let Some(dispatch) = dispatch {
                cores[to].0.borrow_mut().handle_dispatch(Instant::now(), from, dispatch);
                moved = true;
            }
        }
    }
}

/// Makes a document of this size that is pending for a session on each of the first two cores.
fn pending_document(bytes: usize) -> ([Core; 3], Meanwhile, [SessionId; 2]) {
    let (cores, meanwhile) = cores();
    let key = Key::parse("k").unwrap();
    let sessions =
        [0, 1].map(|core: usize| cores[core].subscribe(FORMAT, &key.clone().into(), Policy::Latest));
    run_until_idle(&cores);
    let home = cores[0].0.borrow().core_of(&key.clone().into());
    let document =
        Document { body: vec![b'x'; bytes].into(), json: false, content_type: "text/plain".into() };
    cores[home].0.borrow_mut().handle_document(&key, FeedState::Live, document, None);
    run_until_idle(&cores);
    (cores, meanwhile, sessions)
}

#[test]
fn a_large_document_is_encoded_once_and_no_core_waits() {
    let bytes = OWN_ENCODING_BYTES_MAX + 1;
    let (cores, meanwhile, [first, second]) = pending_document(bytes);
    let other = cores[1].clone();
    assert_eq!(other.ready(), [second]);
    *meanwhile.borrow_mut() = Some(Box::new(move || {
        assert_eq!(other.take(second), []);
        assert!(other.0.borrow().awaits_encodings());
        other.0.borrow_mut().handle_time(Instant::now());
        assert_eq!((other.ready(), other.take(second)), (vec![], vec![]), "it is being made still");
    }));
    assert_eq!(cores[0].take(first), [(bytes, 0)]);
    assert!(meanwhile.borrow().is_none(), "the first core has encoded");
    cores[1].0.borrow_mut().handle_time(Instant::now());
    assert!(!cores[1].0.borrow().awaits_encodings());
    assert_eq!(cores[1].ready(), [second]);
    assert_eq!(cores[1].take(second), [(bytes, 0)]);
}

#[test]
fn a_small_document_is_encoded_by_the_other_core_as_well() {
    let bytes = OWN_ENCODING_BYTES_MAX;
    let (cores, meanwhile, [first, second]) = pending_document(bytes);
    let other = cores[1].clone();
    *meanwhile.borrow_mut() = Some(Box::new(move || assert_eq!(other.take(second), [(bytes, 1)])));
    assert_eq!(cores[0].take(first), [(bytes, 0)]);
}

/// A caller that closes a session first sends all its pending deliveries, and can't wait for another core.
#[test]
fn take_all_does_not_wait_for_encodings() {
    let bytes = OWN_ENCODING_BYTES_MAX + 1;
    let (cores, meanwhile, [first, second]) = pending_document(bytes);
    let other = cores[1].clone();
    *meanwhile.borrow_mut() = Some(Box::new(move || {
        assert_eq!(other.take(second), []);
        let mut taken = Vec::new();
        other.0.borrow_mut().take_all(second, |_, frame| taken.push(*frame));
        assert_eq!(taken, [(bytes, 1)]);
        assert!(!other.0.borrow_mut().handle_sent(second));
        assert!(other.0.borrow().counters().balanced());
    }));
    assert_eq!(cores[0].take(first), [(bytes, 0)]);
    cores[1].0.borrow_mut().handle_time(Instant::now());
    assert!(!cores[1].0.borrow().awaits_encodings());
    assert_eq!((cores[1].ready(), cores[1].take(second)), (vec![second], vec![]));
}

#[test]
fn a_session_that_ends_while_it_waits_for_an_encoding_is_removed() {
    let (cores, meanwhile, [first, second]) = pending_document(OWN_ENCODING_BYTES_MAX + 1);
    let other = cores[1].clone();
    *meanwhile.borrow_mut() = Some(Box::new(move || {
        assert_eq!(other.take(second), []);
        other.0.borrow_mut().handle_close(second);
    }));
    cores[0].take(first);
    cores[1].0.borrow_mut().handle_time(Instant::now() + Duration::from_millis(1));
    assert_eq!(cores[1].ready(), []);
    assert!(!cores[1].0.borrow().awaits_encodings());
}

/// Queued publications keep their order, and count with the size of their body until the frame exists.
#[test]
fn messages_keep_their_order_while_an_encoding_is_made() {
    fn check(format: FormatId, expect: &[(usize, usize)]) {
        let bytes = OWN_ENCODING_BYTES_MAX + 1;
        let (cores, meanwhile) = cores();
        let room = Room::plain("r").unwrap();
        let sessions =
            [0, 1].map(|core: usize| cores[core].subscribe(format, &room.clone().into(), Policy::Queue));
        run_until_idle(&cores);
        let publish = |bytes: usize| {
            let data = Data::Text(Bytes::from(vec![b'x'; bytes]));
            cores[2].0.borrow_mut().handle_publish(Instant::now(), &room, None, data, Emit::default());
        };
        publish(bytes);
        publish(1);
        let next = |to: usize| cores[2].0.borrow_mut().outgoing(to).pop_front().unwrap();
        let (other, large, small) = (cores[1].clone(), next(1), next(1));
        let second = sessions[1];
        *meanwhile.borrow_mut() = Some(Box::new(move || {
            other.0.borrow_mut().handle_dispatch(Instant::now(), 2, large);
            other.0.borrow_mut().handle_dispatch(Instant::now(), 2, small);
            assert_eq!(other.ready(), [second]);
            assert_eq!(other.take(second), [], "the small one doesn't overtake the large one");
        }));
        cores[0].0.borrow_mut().handle_dispatch(Instant::now(), 2, next(0));
        assert!(meanwhile.borrow().is_none(), "the first core has encoded");
        cores[1].0.borrow_mut().handle_time(Instant::now());
        assert_eq!(cores[1].ready(), [second]);
        assert_eq!(cores[1].take(second), expect);
        let hub = cores[1].0.borrow();
        assert_eq!((hub.pending_bytes(), hub.counters().pending), (0, 0));
    }
    check(FORMAT, &[(OWN_ENCODING_BYTES_MAX + 1, 0), (1, 1)]);
    check(MUTE, &[]);
}
