//! Polls a future again at once if it has woken itself.
//!
//! hyper passes the body of a request to its handler over a channel within one task, and so wakes the running
//! task. tokio schedules such a task again, and wakes another thread to look for work. That thread finds
//! none. Half of the control plane's thread wake-ups by a request were of this kind.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Maximum number of polls of a future in one turn of its task. If the future still wakes itself after that,
/// other tasks run first.
const POLLS_MAX: usize = 4;

/// The future waits to be woken.
const WAITING: u8 = 0;
/// The future is being polled and hasn't been woken since.
const POLLED: u8 = 1;
/// The future must be polled again.
const WOKEN: u8 = 2;

struct Wakes {
    state: AtomicU8,
    /// Wakes the task that runs the future.
    task: Mutex<Waker>,
}

impl Wakes {
    fn set_task(&self, waker: &Waker) {
        self.task.lock().clone_from(waker);
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == WAITING {
            self.task.lock().wake_by_ref();
        }
    }
}

/// Runs a future to its end. Polls it again at once if it has woken itself.
pub(super) async fn repoll<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let wakes = Arc::new(Wakes { state: AtomicU8::new(POLLED), task: Mutex::new(Waker::noop().clone()) });
    let waker = Waker::from(wakes.clone());
    poll_fn(|task| {
        wakes.set_task(task.waker());
        for _ in 0..POLLS_MAX {
            // A swap, not a store: the poll must see the effects that precede an overwritten `WOKEN`, because
            // that wake caused nothing else.
            wakes.state.swap(POLLED, Ordering::AcqRel);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
            let wait = wakes.state.compare_exchange(POLLED, WAITING, Ordering::AcqRel, Ordering::Acquire);
            if wait.is_ok() {
                return Poll::Pending;
            }
        }
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Polls a `repoll` once. Its future wakes itself this many times. Returns the number of the future's
    /// polls, and of the task's wakes.
    fn polled_once(wakes: usize) -> (usize, usize) {
        let (count, polls) = (Arc::new(Count::default()), Cell::new(0));
        let future = poll_fn(|context| {
            polls.set(polls.get() + 1);
            if polls.get() <= wakes {
                context.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
        let waker = Waker::from(count.clone());
        assert!(pin!(repoll(future)).poll(&mut Context::from_waker(&waker)).is_pending());
        (polls.get(), count.0.load(Ordering::Relaxed))
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again_without_its_task() {
        assert_eq!([0, 1, 2, 3].map(polled_once), [(1, 0), (2, 0), (3, 0), (4, 0)]);
        assert_eq!(polled_once(usize::MAX), (4, 1), "others have their turn");
    }

    #[test]
    fn wakes_in_between_wake_the_task_once_until_it_runs() {
        let (count, inner) = (Arc::new(Count::default()), Cell::new(None));
        let future = poll_fn(|context| {
            inner.set(Some(context.waker().clone()));
            Poll::<()>::Pending
        });
        let mut future = pin!(repoll(future));
        let waker = Waker::from(count.clone());
        for turn in 1..4 {
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            let woken = inner.take().unwrap();
            woken.wake_by_ref();
            woken.wake();
            assert_eq!(count.0.load(Ordering::Relaxed), turn);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_wake_of_another_thread_is_lost() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let received = tokio::spawn(repoll(async move {
            let mut received = 0;
            while receiver.recv().await.is_some() {
                received += 1;
            }
            received
        }));
        for _ in 0..10_000 {
            sender.send(()).await.unwrap();
        }
        drop(sender);
        assert_eq!(received.await.unwrap(), 10_000);
    }
}
