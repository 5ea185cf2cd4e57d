//! Ends the children on Ctrl-C, SIGTERM and SIGHUP.
//!
//! A thread receives the signal, ends the children and then the process. (Blocking signals and waiting for them isn't
//! possible: children inherit blocked signals, and servers are ended by SIGTERM.) Children are in process groups of
//! their own. So a terminal's Ctrl-C reaches the lab alone, which doesn't mistake their end for a failure, and
//! processes that they started end with them.
//!
//! Invariant: from the signal to the end of the process, no results are written: [`is_over`] returns `true`.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::server::group_of;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Time for children to end after SIGTERM, before SIGKILL.
const END_WITHIN: Duration = Duration::from_secs(2);

static CHILDREN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
static LAST_WORDS: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);
static OVER: AtomicBool = AtomicBool::new(false);

/// Makes a signal end the children and the process, after it calls `last_words`. A second call replaces `last_words`.
pub fn end_children_on_signal(last_words: impl FnOnce() + Send + 'static) {
    static SET_UP: AtomicBool = AtomicBool::new(false);
    *LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(last_words));
    if SET_UP.swap(true, Ordering::SeqCst) {
        return;
    }
    // Without the handler, a signal ends this process as usual, and setpriv(1) ends the servers.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    thread::spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        OVER.store(true, Ordering::SeqCst);
        end_children();
        if let Some(last_words) = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner).take() {
            last_words();
        }
        // The exit code by which shells report a death by signal.
        exit(128 + signal);
    });
}

/// Returns `true` if the process is about to end.
pub fn is_over() -> bool {
    OVER.load(Ordering::SeqCst)
}

/// A child that ends with the process, as long as the guard isn't dropped. It leads its own process group.
#[derive(Debug)]
pub struct ChildGuard(u32);

impl ChildGuard {
    /// Starts `command` in its own process group.
    pub fn spawn(command: &mut Command) -> io::Result<(Child, Self)> {
        // The lock is taken before the child starts. A signal in between would end all children except this one.
        let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.process_group(0).spawn()?;
        children.insert(child.id());
        let guard = Self(child.id());
        Ok((child, guard))
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        CHILDREN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

fn end_children() {
    let children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = |id: &u32| i32::try_from(*id).ok().and_then(Pid::from_raw);
    let groups: Vec<Pid> = children.iter().filter_map(pid).collect();
    // No other child starts in the meantime, because the lock is held to the end.
    for group in &groups {
        let _ = kill_process_group(*group, Signal::TERM);
    }
    let deadline = Instant::now() + END_WITHIN;
    // A zombie has ended.
    let is_there = |group: &Pid| {
        let leader = group.as_raw_nonzero().get().unsigned_abs();
        test_kill_process_group(*group).is_ok() && group_of(leader).is_some()
    };
    while groups.iter().any(is_there) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    for group in groups {
        let _ = kill_process_group(group, Signal::KILL);
    }
    std::mem::forget(children);
}
