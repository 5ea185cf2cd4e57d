//! A bounded queue of log lines, and the thread that writes them.
//!
//! The formatter makes one `write` per line. The queue has two buffers: lines are appended to one while the
//! thread writes the other, so the queue holds at most twice `bytes_max`.
//!
//! `tracing-appender` isn't used: it bounds lines instead of bytes, doesn't count the lines of a write that
//! fails, and needs the crate `time` to name files, which Stentor doesn't write.

use parking_lot::{Condvar, Mutex};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// Maximum time that a closing queue waits until its lines are written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The queue to which log lines are appended. Appending never waits.
#[derive(Clone)]
pub(super) struct LineQueue(Arc<Shared>);

struct Shared {
    queued: Mutex<Queued>,
    /// Notified when a line is queued, when the queue is closed, and when the thread has ended.
    changed: Condvar,
    bytes_max: usize,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Queued {
    bytes: Vec<u8>,
    lines: u64,
    is_closed: bool,
    has_ended: bool,
}

/// Number of lines that were dropped because the queue was full or the output failed.
#[derive(Clone)]
pub(super) struct DroppedLines(Arc<Shared>);

impl DroppedLines {
    pub(super) fn count(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

/// Closes the queue when it is dropped, and waits up to a second until all lines are written.
pub(super) struct QueueGuard(Arc<Shared>);

impl Drop for QueueGuard {
    fn drop(&mut self) {
        let mut queued = self.0.queued.lock();
        queued.is_closed = true;
        self.0.changed.notify_all();
        self.0.changed.wait_while_for(&mut queued, |queued| !queued.has_ended, CLOSE_TIMEOUT);
    }
}

impl Shared {
    /// Appends a line, or drops it if the queue is full. An empty queue accepts a line of any length.
    fn push(&self, line: &[u8]) {
        let mut queued = self.queued.lock();
        if !queued.bytes.is_empty() && queued.bytes.len() + line.len() > self.bytes_max {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queued.bytes.extend_from_slice(line);
        queued.lines += 1;
        self.changed.notify_all();
    }

    /// Writes lines until the queue is closed and empty.
    fn write_to(&self, mut output: impl Write) {
        let mut bytes = Vec::new();
        loop {
            let is_idle = |queued: &mut Queued| queued.bytes.is_empty() && !queued.is_closed;
            let mut queued = self.queued.lock();
            self.changed.wait_while(&mut queued, is_idle);
            if queued.bytes.is_empty() {
                queued.has_ended = true;
                self.changed.notify_all();
                return;
            }
            bytes.clear();
            std::mem::swap(&mut bytes, &mut queued.bytes);
            let lines = std::mem::take(&mut queued.lines);
            drop(queued);
            if output.write_all(&bytes).and_then(|()| output.flush()).is_err() {
                self.dropped.fetch_add(lines, Ordering::Relaxed);
            }
        }
    }
}

/// Starts a thread with this `name` that writes lines to `output`. At most `bytes_max` bytes wait while other
/// lines are written.
///
/// # Errors
/// The thread can't be started.
pub(super) fn start(
    name: &str,
    bytes_max: usize,
    output: impl Write + Send + 'static,
) -> io::Result<(LineQueue, DroppedLines, QueueGuard)> {
    let (queued, changed) = (Mutex::default(), Condvar::new());
    let shared = Arc::new(Shared { queued, changed, bytes_max, dropped: AtomicU64::new(0) });
    let writer = shared.clone();
    thread::Builder::new().name(name.to_owned()).spawn(move || writer.write_to(output))?;
    Ok((LineQueue(shared.clone()), DroppedLines(shared.clone()), QueueGuard(shared)))
}

impl Write for LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LineQueue {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// An output. For each write, the test decides whether it succeeds or fails.
    struct Output {
        writes: Sender<String>,
        answers: Receiver<io::Result<()>>,
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.writes.send(String::from_utf8(bytes.to_vec()).unwrap()).unwrap();
            self.answers.recv().unwrap().map(|()| bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_beyond_the_bound_and_lines_of_a_failed_write_are_dropped_and_counted() {
        let ((writes, written), (answer, answers)) = (channel(), channel());
        let (mut queue, dropped, guard) = start("test", 10, Output { writes, answers }).unwrap();
        queue.write_all(b"longer than the bound\n").unwrap();
        assert_eq!(written.recv().unwrap(), "longer than the bound\n");
        for line in ["one\n", "two\n", "3\n", "four\n"] {
            queue.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(dropped.count(), 1);
        answer.send(Ok(())).unwrap();
        assert_eq!(written.recv().unwrap(), "one\ntwo\n3\n");
        answer.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        queue.write_all(b"five\n").unwrap();
        assert_eq!(written.recv().unwrap(), "five\n");
        assert_eq!(dropped.count(), 4);
        answer.send(Ok(())).unwrap();
        drop(guard);
        assert!(written.recv().is_err(), "the thread has ended");
    }
}
