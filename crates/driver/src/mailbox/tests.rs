use super::*;
use crate::waker::Sleeper;

fn mailbox<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    channel(capacity, Sleeper::simulated().waker())
}

#[test]
fn a_mailbox_is_first_in_first_out_and_bounded() {
    let (mut sender, mut receiver) = mailbox(3); // rounded up to 4
    for round in 0..10 {
        assert!(receiver.is_empty());
        for item in 0..4 {
            assert_eq!(sender.try_send(round * 10 + item), Ok(()));
        }
        assert_eq!(sender.try_send(-1), Err(-1));
        assert!(!receiver.is_empty());
        assert_eq!(receiver.try_recv(), Some(round * 10));
        assert_eq!(sender.try_send(99), Ok(()));
        let rest: Vec<i32> = std::iter::from_fn(|| receiver.try_recv()).collect();
        assert_eq!(rest, [round * 10 + 1, round * 10 + 2, round * 10 + 3, 99]);
    }
}

#[test]
fn a_flush_wakes_once_per_batch() {
    let sleeper = Sleeper::simulated();
    let (mut sender, _receiver) = channel(8, sleeper.waker());
    sender.flush();
    assert!(!sleeper.is_notified());
    sender.try_send(1).unwrap();
    assert!(!sleeper.is_notified());
    sender.flush();
    assert!(sleeper.end_sleep());
    sender.flush();
    assert!(!sleeper.end_sleep());
    drop(sender);
    assert!(sleeper.end_sleep());
}

#[test]
fn dropping_either_end_frees_the_contents() {
    let item = Arc::new(());
    let (mut sender, receiver) = mailbox(4);
    sender.try_send(Arc::clone(&item)).unwrap();
    assert_eq!(Arc::strong_count(&item), 2);
    drop(receiver);
    assert_eq!(Arc::strong_count(&item), 1);
    assert!(sender.try_send(Arc::clone(&item)).is_err());

    let (mut sender, mut receiver) = mailbox(4);
    for _ in 0..3 {
        sender.try_send(Arc::clone(&item)).unwrap();
    }
    drop(sender);
    assert!(receiver.try_recv().is_some() && !receiver.is_disconnected());
    drop(receiver);
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn two_threads_lose_and_reorder_nothing() {
    const ITEMS: u64 = if cfg!(miri) { 500 } else { 200_000 };
    let (mut sender, mut receiver) = mailbox(16);
    let producer = std::thread::spawn(move || {
        for item in 0..ITEMS {
            let mut boxed = Box::new(item);
            while let Err(back) = sender.try_send(boxed) {
                boxed = back;
                std::thread::yield_now();
            }
        }
    });
    let mut expected = 0;
    while !receiver.is_disconnected() {
        match receiver.try_recv() {
            Some(item) => {
                assert_eq!(*item, expected);
                expected += 1;
            }
            None => std::thread::yield_now(),
        }
    }
    assert_eq!(expected, ITEMS);
    producer.join().unwrap();
}
