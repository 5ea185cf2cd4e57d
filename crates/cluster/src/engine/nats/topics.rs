//! Requests about one name take turns: each takes effect before the next one begins.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use stentor_ports::{Charge, Class, Ledger};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Maximum number of names. At this number, or without memory for more, the oldest unused names are forgotten.
const TOPICS_MAX: usize = 16_384;
/// Maximum number of names that are forgotten for a new one.
const FORGOTTEN_MAX: usize = 4;
/// Memory for a name besides its text and its state: its places in the table, and the counts of references.
const PLACE_BYTES: usize = 128;

/// The state of a name.
pub(super) trait Topic: Default + Send + 'static {
    /// Returns `true` if the state must not be forgotten.
    fn is_needed(&self) -> bool {
        false
    }

    /// Memory of the state, without its fixed size.
    fn bytes(&self) -> usize {
        0
    }
}

/// A topic with its charge.
struct Counted<T> {
    topic: T,
    fixed_bytes: usize,
    charge: Charge,
}

impl<T: Topic> Counted<T> {
    fn count(&self) {
        self.charge.set(self.fixed_bytes + self.topic.bytes());
    }
}

type Shared<T> = Arc<AsyncMutex<Counted<T>>>;

struct Table<T> {
    by_name: HashMap<Arc<str>, Shared<T>>,
    /// The names, in the order in which they are forgotten.
    oldest: VecDeque<Arc<str>>,
}

impl<T: Topic> Table<T> {
    /// Forgets the oldest names. A name in use goes to the end of the order.
    fn forget(&mut self) {
        for _ in 0..FORGOTTEN_MAX {
            let Some(name) = self.oldest.pop_front() else { return };
            // References to a name's state are taken only from the table, which is locked.
            let is_idle = |topic: &Shared<T>| {
                Arc::strong_count(topic) == 1
                    && topic.try_lock().is_ok_and(|counted| !counted.topic.is_needed())
            };
            if self.by_name.get(&name).is_some_and(is_idle) {
                self.by_name.remove(&name);
            } else {
                self.oldest.push_back(name);
            }
        }
    }
}

/// Names with their states.
pub(super) struct Topics<T> {
    table: Mutex<Table<T>>,
    ledger: Arc<Ledger>,
}

/// A future for the turn of one request.
pub(super) type Turn<T> = Pin<Box<dyn Future<Output = Held<T>> + Send>>;

/// The turn of one request.
pub(super) struct Held<T: Topic>(OwnedMutexGuard<Counted<T>>);

impl<T: Topic> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.topic
    }
}

impl<T: Topic> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.topic
    }
}

impl<T: Topic> Drop for Held<T> {
    fn drop(&mut self) {
        self.0.count();
    }
}

impl<T: Topic> Topics<T> {
    pub(super) fn new(ledger: &Arc<Ledger>) -> Self {
        let table = Table { by_name: HashMap::new(), oldest: VecDeque::new() };
        Self { table: Mutex::new(table), ledger: ledger.clone() }
    }

    /// Requests a turn. Turns are in the order of these calls.
    pub(super) fn turn(&self, name: &str) -> Turn<T> {
        let mut lock = Box::pin(self.topic(name).lock_owned());
        // The first poll puts the request into the queue.
        match lock.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(guard) => Box::pin(std::future::ready(Held(guard))),
            Poll::Pending => Box::pin(async { Held(lock.await) }),
        }
    }

    fn topic(&self, name: &str) -> Shared<T> {
        let mut table = self.table.lock();
        if let Some(topic) = table.by_name.get(name) {
            return topic.clone();
        }
        if table.by_name.len() >= TOPICS_MAX || !self.ledger.has_room(0) {
            table.forget();
        }
        let fixed_bytes = PLACE_BYTES + size_of::<AsyncMutex<Counted<T>>>() + name.len();
        let charge = Charge::new(self.ledger.clone(), Class::Cluster);
        let counted = Counted { topic: T::default(), fixed_bytes, charge };
        counted.count();
        let topic = Arc::new(AsyncMutex::new(counted));
        let name: Arc<str> = name.into();
        table.by_name.insert(name.clone(), topic.clone());
        table.oldest.push_back(name);
        topic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Known {
        bytes: usize,
        is_needed: bool,
    }

    impl Topic for Known {
        fn is_needed(&self) -> bool {
            self.is_needed
        }

        fn bytes(&self) -> usize {
            self.bytes
        }
    }

    /// Returns a turn that has come at once.
    fn turn(topics: &Topics<Known>, name: &str) -> Held<Known> {
        let turn = topics.turn(name).as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(held) = turn else { panic!("{name}") };
        held
    }

    #[test]
    fn names_have_a_bound_and_the_oldest_ones_without_use_are_forgotten() {
        let ledger = Arc::new(Ledger::new(1 << 30));
        let topics = Topics::<Known>::new(&ledger);
        turn(&topics, "needed").is_needed = true;
        let used = turn(&topics, "used");
        turn(&topics, "old").bytes = 1;
        for i in 0..TOPICS_MAX + 100 {
            turn(&topics, &i.to_string());
            assert!(topics.table.lock().by_name.len() <= TOPICS_MAX);
        }
        let mut next = topics.turn("used");
        let context = &mut Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(context).is_pending(), "it is still the other one's turn");
        drop(used);
        assert!(next.as_mut().poll(context).is_ready());
        assert!(turn(&topics, "needed").is_needed);
        assert_eq!(turn(&topics, "old").bytes, 0);
        let table = topics.table.lock();
        assert_eq!(table.by_name.len(), table.oldest.len());
    }

    #[test]
    fn names_and_their_state_count_until_they_are_removed() {
        let all = 1 << 20;
        let ledger = Arc::new(Ledger::new(all));
        let topics = Topics::<Known>::new(&ledger);
        turn(&topics, "a").bytes = all / 2;
        assert!(!ledger.has_room(all / 2));
        turn(&topics, "b").bytes = all;
        assert!(!ledger.has_room(0));
        turn(&topics, "c");
        assert!(ledger.has_room(all - 1_000), "the others are forgotten");
        drop(topics);
        assert!(ledger.has_room(all));
    }
}
