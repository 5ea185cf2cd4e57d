//! Decodes frames that were changed on their way. The program has one test, because the test limits the allocations of
//! the process.

#![allow(clippy::unwrap_used)] // Tests may panic.

use bytes::Bytes;
use cap::Cap;
use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;
use stentor_cluster::NodeId;
use stentor_cluster::engine::Channel;
use stentor_cluster::frame::{
    AnswerError, Answered, Frame, Frames, LogEntry, PresenceFrame, Question, RevocationsFrame, SocketAnswer,
    SocketFrame, Task,
};
use stentor_hub::{
    Absence, Data, Document, Epoch, FeedState, Key, MissedMessage, Policy, Position, PresenceMessage, Room,
    RoomMember, Rooms, SubscribeOptions, Topic, User,
};
use stentor_ports::{
    Broadcast, Claimant, Concerned, EndedSession, FeedFetches, FeedInfo, FeedList, FeedsQuery,
    IdentityFilter, LinkInfo, LinkList, LinkState, MOVING_MESSAGES_MAX, MemberList, MembersQuery,
    MovingSocket, MovingSubscription, Pid, Principal, PublicId, Recheck, RecheckAction, Revoked, RoomList,
    RoomsQuery, SessionApp, SessionDetails, SessionEvent, SessionInfo, SessionList, SessionsQuery,
    SocketName, SocketRequest, SubscriberCounts, Target,
};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const DOCUMENT_BYTES_MAX: usize = 1 << 16;
/// Maximum memory per byte of a frame. Items of a growing list take more memory than their bytes.
const BYTES_PER_BYTE: usize = 64;
/// Memory of a decompressor.
const ZSTD_BYTES: usize = 1 << 20;

fn public_id() -> PublicId {
    PublicId::parse("aaaaaaaaaaaaaaaaaaaa").unwrap()
}

fn arguments() -> Data {
    Data::Arguments { json: "1,2".into(), attachments: [Bytes::from("a"), Bytes::from("b")].into() }
}

/// A socket of a namespace that moves between nodes, with all its optional parts.
fn socket(namespace: &str) -> MovingSocket {
    let subscription = |topic: Topic, options: SubscribeOptions, is_granted: bool| MovingSubscription {
        topic,
        options,
        position: is_granted.then_some(Position { epoch: Epoch(9), offset: 7 }),
        is_granted,
    };
    let options =
        SubscribeOptions { policy: Policy::Latest, deltas: false, interval: Duration::from_secs(1) };
    let missed = |id, is_direct, data| MissedMessage { id, is_direct, event: Some("e".into()), data };
    MovingSocket {
        id: public_id(),
        principal: Some(Principal { issuer: "https://id.example.com".into(), subject: "42".into() }),
        subscriptions: vec![
            subscription(Room::all_members(namespace).unwrap().into(), Policy::Queue.into(), false),
            subscription(Room::new(namespace, "red").unwrap().into(), Policy::DropOldest.into(), true),
            subscription(Key::parse("game").unwrap().into(), options, true),
            MovingSubscription {
                topic: Topic::Presence(Room::new(namespace, "red").unwrap()),
                options: Policy::Queue.into(),
                position: None,
                is_granted: true,
            },
        ],
        missed: vec![missed(1, true, arguments()), missed(2, false, Data::Json("[1]".into()))],
        known: vec![1, 2, u64::MAX],
    }
}

fn answer_about_socket(id: u64, answer: SocketAnswer) -> Frame {
    Frame::Socket(SocketFrame::Answer { id, answer })
}

fn all_kinds() -> Vec<Frame> {
    let id = public_id();
    let pid = Pid::parse("aaaaaaaaaaaaaaaaaaaa").unwrap();
    let rooms = || Rooms::new("/", ["red", "blue"]).unwrap();
    let target = Target::of("/").unwrap().room("red").unwrap().session(id).except_session(id);
    let ask = |task| Frame::Question { id: 1, question: Question::Sessions(target.clone(), task) };
    let answer = |answer| Frame::Answer { id: 1, answer: Ok(answer) };
    let event = || SessionEvent {
        name: "rate_limited".into(),
        reason: "session_limits.messages_per_second".into(),
        count: 3,
        first: 7,
        last: u64::MAX,
    };
    let ended = EndedSession {
        id: id.to_string(),
        protocol: "sse".into(),
        address: "192.0.2.7".into(),
        since: 7,
        ended: u64::MAX,
        timeline: vec![event()],
    };
    let session = SessionInfo {
        id: id.to_string(),
        protocol: "sockjs".into(),
        rooms: vec!["red".into()],
        handshake: None,
        details: SessionDetails {
            node: Some("a".into()),
            app: Some(SessionApp::Name("chat".into())),
            namespace: Some("/chat".into()),
            user: Some(Principal { issuer: "https://id.example.com".into(), subject: "42".into() }),
            info: Some("{}".into()),
            address: Some("2001:db8::/64".into()),
            since: Some(u64::MAX),
            transport: Some("polling".into()),
            feeds: vec![("matches/1".into(), 9)],
            timeline: vec![event()],
            send_buffer_bytes: 7,
        },
    };
    let document =
        |body: &'static str| Document { body: body.into(), json: true, content_type: "text/plain".into() };
    let link = LinkInfo {
        node: Some("a".into()),
        app: "chat".into(),
        link: 7,
        worker: "w".into(),
        instance: "i".into(),
        state: LinkState::Lost,
        on_crash: "drop".into(),
        sessions: 1,
        unacknowledged_bytes: 2,
    };
    let fetches = FeedFetches {
        upstream: "matches".into(),
        url: Some("http://127.0.0.1/***/1".into()),
        reason: "503".into(),
        failures: 3,
        took_micros: u64::MAX,
        failing_since: Some(7),
        last_success: None,
        next_fetch: Some(9),
    };
    let feed = |fetches| FeedInfo {
        node: Some("a".into()),
        key: "matches/1".into(),
        state: "stale".into(),
        document_bytes: 7,
        is_subscribed: true,
        fetches,
    };
    let position = Position { epoch: Epoch(1), offset: 2 };
    let principal = Principal { issuer: "https://id.example.com".into(), subject: "42".into() };
    let name_for = |claimant| SocketName { pid, namespace: "/chat".into(), last: Some(u64::MAX), claimant };
    let question =
        |claimant, request| Frame::Socket(SocketFrame::Question { id: 1, name: name_for(claimant), request });
    let user = User { issuer: "https://id.example.com".into(), subject: "42".into() };
    let info = Some(r#"{"name":"Ada"}"#.into());
    let member = Arc::new(RoomMember { id: id.into(), user: Some(user), info, since_ms: 7 });
    let filter = IdentityFilter {
        issuer: Some("https://id.example.com".into()),
        subject: Some("42".into()),
        issued_before: Some(7),
        ..IdentityFilter::default()
    };
    let presence = |message| Frame::Presence(PresenceFrame { room: Room::plain("red").unwrap(), message });
    vec![
        Frame::Message(Broadcast {
            id: 7,
            rooms: rooms(),
            except_rooms: vec![Room::plain("quiet").unwrap()],
            except_sessions: vec![id],
            event: Some("goal".into()),
            data: arguments(),
            volatile: true,
        }),
        ask(Task::Emit { event: None, data: Data::Text("hi".into()), volatile: false }),
        ask(Task::Join(rooms().iter().cloned().collect())),
        ask(Task::List { limit: 7 }),
        ask(Task::Call { call: 7, event: "ask".into(), data: arguments(), timeout: Duration::from_secs(2) }),
        Frame::Acknowledged { call: 7, texts: vec!["1,2".into(), Bytes::new()] },
        Frame::Question {
            id: 1,
            question: Question::NodeSessions(SessionsQuery {
                search: "ada".into(),
                user: Some("ada".into()),
                issuer: Some("https://id.example".into()),
                address: None,
                limit: 7,
            }),
        },
        Frame::Question {
            id: 1,
            question: Question::Sockets("chat".into(), target.clone(), Task::Disconnect { close: true }),
        },
        Frame::Question {
            id: 1,
            question: Question::SocketRooms(
                "chat".into(),
                RoomsQuery { namespace: "/".into(), prefix: "a".into(), after: "b".into(), limit: 3 },
            ),
        },
        Frame::Question {
            id: 1,
            question: Question::Rooms(RoomsQuery {
                namespace: "/".into(),
                prefix: "a".into(),
                after: "b".into(),
                limit: 3,
            }),
        },
        Frame::Question { id: 1, question: Question::Links },
        answer(Answered::Links(LinkList::new(vec![link]))),
        Frame::Question { id: 1, question: Question::Feeds(FeedsQuery { search: "m".into(), limit: 7 }) },
        answer(Answered::Feeds(FeedList::new([feed(Some(fetches)), feed(None)], 9))),
        Frame::Question { id: 1, question: Question::Subscribers(vec![Key::parse("matches/1").unwrap()]) },
        answer(Answered::Subscribers(SubscriberCounts { counts: vec![7], ..SubscriberCounts::default() })),
        answer(Answered::Concerned(Concerned { sessions: 1, refused: 2, ..Concerned::default() })),
        answer(Answered::Sessions(SessionList { ended: vec![ended], ..SessionList::new(vec![session], 1) })),
        answer(Answered::Rooms(RoomList { rooms: vec![("red".into(), 1)], ..RoomList::default() })),
        Frame::Answer { id: 1, answer: Err(AnswerError) },
        Frame::Feed(LogEntry::whole(1, &document("[1,2,3]"))),
        Frame::Feed(LogEntry::change(1, &document("[1,2]"), &document("[1]"), position, Some("[]".into()))),
        Frame::Feed(LogEntry::state(1, (FeedState::Stale, "r".into()), Some(1))),
        question(Claimant::Unverified, SocketRequest::Take),
        question(Claimant::Anonymous, SocketRequest::Describe),
        question(Claimant::User(principal), SocketRequest::Look),
        answer_about_socket(1, SocketAnswer::None),
        answer_about_socket(1, SocketAnswer::At(NodeId(3))),
        answer_about_socket(u64::MAX, SocketAnswer::Socket(Box::new(socket("/")))),
        answer_about_socket(1, SocketAnswer::Socket(Box::new(socket("/chat")))),
        Frame::Socket(SocketFrame::Moved { pid, to: NodeId(3) }),
        Frame::Released(1),
        Frame::Alive,
        Frame::Application { app: "chat".into(), message: "entries".into() },
        Frame::Question {
            id: 1,
            question: Question::Recheck(Recheck {
                filter: filter.clone(),
                action: RecheckAction::Disconnect,
            }),
        },
        Frame::Revocations(RevocationsFrame::Ask { digest: 1, after: Some(filter.clone()) }),
        Frame::Revocations(RevocationsFrame::Page {
            digest: 1,
            entries: vec![
                Revoked { filter: filter.clone(), until: 9 },
                Revoked { filter: filter.clone(), until: 10 },
            ],
        }),
        Frame::Revocations(RevocationsFrame::Added { entries: vec![Revoked { filter, until: 11 }] }),
        presence(PresenceMessage::Watch { have: vec![(1, 2), (3, 4)] }),
        presence(PresenceMessage::Delta {
            from: 1,
            to: 2,
            count: 3,
            joined: vec![member.clone()],
            left: vec![(member.id, Absence::Suspended)],
        }),
        presence(PresenceMessage::Snapshot { version: 1, count: 2, members: vec![member.clone()] }),
        presence(PresenceMessage::Current { version: 1 }),
        Frame::Question {
            id: 1,
            question: Question::Members(MembersQuery {
                room: Room::plain("red").unwrap(),
                after: Some(id),
                limit: 3,
            }),
        },
        answer(Answered::Members(MemberList {
            members: vec![member],
            has_more: true,
            count: 7,
            ..MemberList::default()
        })),
    ]
}

fn changed(random: &mut fastrand::Rng, frame: &Bytes) -> Bytes {
    let mut frame = frame.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..frame.len());
        match random.u8(..5) {
            0 => frame[at] = random.u8(..),
            1 => frame.insert(at, random.u8(..)),
            2 => frame.truncate(at + 1),
            3 => frame[at] ^= 1 << random.u8(..8),
            _ => {
                let length = [0, 1, 0xffff, u32::MAX][random.usize(..4)].to_le_bytes();
                frame[at..].iter_mut().zip(length).for_each(|(byte, new)| *byte = new);
            }
        }
    }
    frame.into()
}

#[test]
fn the_encoding_of_frames_changes_only_with_their_version() {
    let frames = Frames::new(NodeId(1), None, DOCUMENT_BYTES_MAX);
    let encoded: Vec<Bytes> = all_kinds().iter().map(|frame| frames.encode(&Channel::Nodes, frame)).collect();
    let version = format!("version {}", encoded[0][0]);
    let lines: Vec<String> = encoded.iter().map(|frame| frame.escape_ascii().to_string()).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/frames.txt");
    let recorded = std::fs::read_to_string(path).unwrap();
    let mut of_version = recorded.lines().skip_while(|line| *line != version).skip(1);
    if let Some(changed) = of_version.find(|line| !lines.iter().any(|new| new == line)) {
        panic!("the encoding of frames has changed: raise VERSION in src/frame/mod.rs; it was {changed}");
    }
    let text = format!("{version}\n{}\n", lines.join("\n"));
    if std::env::var("STENTOR_FRAMES").is_ok_and(|value| value == "update") {
        std::fs::write(path, text).unwrap();
    } else {
        assert!(recorded == text, "write the new frames: STENTOR_FRAMES=update cargo test --test frames");
    }
}

#[test]
fn frames_are_read_as_they_were_written_and_changed_ones_do_no_harm() {
    let frames = Frames::new(NodeId(1), None, DOCUMENT_BYTES_MAX);
    let encode = |frame: &Frame| frames.encode(&Channel::Nodes, frame);
    let originals: Vec<Bytes> = all_kinds().iter().map(encode).collect();
    for (frame, original) in all_kinds().into_iter().zip(&originals) {
        for end in 0..original.len() {
            assert!(frames.decode(&Channel::Nodes, &original.slice(..end)).is_err(), "{frame:?} up to {end}");
        }
        let decoded = frames.decode(&Channel::Nodes, original).unwrap();
        assert_eq!(format!("{decoded:?}"), format!("{:?}", (NodeId(1), frame)));
    }
    let missed = MissedMessage { id: 1, is_direct: true, event: None, data: Data::Text("m".into()) };
    for (count, is_read) in [(MOVING_MESSAGES_MAX, true), (MOVING_MESSAGES_MAX + 1, false)] {
        let socket = MovingSocket { missed: vec![missed.clone(); count], ..socket("/") };
        let frame = answer_about_socket(1, SocketAnswer::Socket(Box::new(socket)));
        assert_eq!(frames.decode(&Channel::Nodes, &encode(&frame)).is_ok(), is_read, "{count} messages");
    }
    let mut decoded = 0;
    for seed in 0..50_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let original = &originals[random.usize(..originals.len())];
        let frame = changed(&mut random, original);
        ALLOCATOR.set_limit(ALLOCATOR.allocated() + BYTES_PER_BYTE * frame.len() + 4_096).unwrap();
        let result = frames.decode(&Channel::Nodes, &frame);
        ALLOCATOR.set_limit(usize::MAX).unwrap();
        decoded += usize::from(result.is_ok());
        if let Ok((_, Frame::Feed(entry @ LogEntry { version: Some(_), .. }))) = result {
            ALLOCATOR.set_limit(ALLOCATOR.allocated() + DOCUMENT_BYTES_MAX + ZSTD_BYTES).unwrap();
            let document = entry.document(b"[1]");
            ALLOCATOR.set_limit(usize::MAX).unwrap();
            assert!(!document.is_ok_and(|document| document.body.len() > DOCUMENT_BYTES_MAX));
        }
    }
    assert!(decoded > 1_000, "most frames weren't even decoded");
}
