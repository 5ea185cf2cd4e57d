//! One io_uring instance: its submission queue and its completion queue.
//!
//! Set up for one thread that enters often: the kernel completes work only inside an enter of that thread
//! (DEFER_TASKRUN, Linux 6.1), and a call that submits runs what can run at once right there. The ring belongs
//! to the thread that first enters it (it is created disabled), so a driver may be made elsewhere.
//!
//! What is pushed never fails and keeps its order: entries beyond the queue are kept here until there is room.
//!
//! Invariant: an entry's memory is valid until its completion; [`Ring::push`] demands it, and everything else
//! here that pushes refers to no memory.

#![allow(unsafe_code)] // What the kernel reads and writes, it finds by address.

use super::token::Token;
use io_uring::types::{CancelBuilder, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Completions per submission: multishot polls complete without having been submitted each time.
const COMPLETIONS_PER_ENTRY: u32 = 4;

/// See the module's documentation.
pub(super) struct Ring {
    io: IoUring,
    enabled: bool,
    /// Entries that found no room, in order.
    beyond: VecDeque<squeue::Entry>,
    /// Completions taken while one of them was looked for, in order.
    aside: VecDeque<Completion>,
    /// Descriptors installed so far.
    installs: u32,
}

/// A socket, by the name that a ring knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A descriptor of the process.
    Descriptor(RawFd),
    /// A direct descriptor: a slot in the ring's own table.
    Slot(u32),
}

/// Builds an operation on a target, which may be of either type.
macro_rules! on {
    ($target:expr, |$fd:ident| $build:expr) => {
        match $target {
            Target::Descriptor(fd) => {
                let $fd = Fd(fd);
                $build
            }
            Target::Slot(slot) => {
                let $fd = Fixed(slot);
                $build
            }
        }
    };
}
pub(super) use on;

/// What the kernel says about an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) token: u64,
    /// As a system call's: an errno if negative.
    pub(super) result: i32,
    /// The operation goes on, and has more to say.
    pub(super) more: bool,
}

impl Completion {
    pub(super) fn result(self) -> Result<u32, Errno> {
        u32::try_from(self.result).map_err(|_| Errno::from_raw_os_error(-self.result))
    }

    /// The result of an install; to be taken once.
    fn installed(self) -> Result<OwnedFd, Errno> {
        let fd = self.result()?;
        // SAFETY: the kernel has made this descriptor for this call, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }
}

impl From<cqueue::Entry> for Completion {
    fn from(entry: cqueue::Entry) -> Self {
        Self { token: entry.user_data(), result: entry.result(), more: cqueue::more(entry.flags()) }
    }
}

impl Ring {
    /// A ring whose submission queue has `entries` (rounded up to a power of two).
    ///
    /// # Errors
    /// The kernel's: ENOSYS or EPERM where io_uring is missing or forbidden, EINVAL where it is too old.
    pub(super) fn new(entries: u32) -> io::Result<Self> {
        let io = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_r_disabled()
            .dontfork()
            .setup_cqsize(entries.next_power_of_two().saturating_mul(COMPLETIONS_PER_ENTRY))
            .build(entries)?;
        Ok(Self { io, enabled: false, beyond: VecDeque::new(), aside: VecDeque::new(), installs: 0 })
    }

    /// As [`Ring::new`], with a table of `slots` for direct descriptors, and a sign at `wake` whenever it has
    /// something to tell and [`Ring::signal`] is on.
    pub(super) fn with_slots(entries: u32, slots: u32, wake: BorrowedFd<'_>) -> io::Result<Self> {
        let mut ring = Self::new(entries)?;
        ring.io.submitter().register_files_sparse(slots)?;
        ring.io.submitter().register_eventfd(wake.as_raw_fd())?;
        ring.signal(false);
        Ok(ring)
    }

    /// Whether the kernel knows every operation that is used here; else the name of one that it doesn't.
    pub(super) fn check(&mut self) -> io::Result<Result<(), &'static str>> {
        let params = self.io.params();
        if !(params.is_feature_nodrop()
            && params.is_feature_ext_arg()
            && params.is_feature_skip_cqe_on_success())
        {
            return Ok(Err("completions that aren't lost"));
        }
        let mut probe = Probe::new();
        self.io.submitter().register_probe(&mut probe)?;
        let needed = [
            (opcode::PollAdd::CODE, "POLL_ADD"),
            (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
            (opcode::Send::CODE, "SEND"),
            (opcode::SendMsg::CODE, "SENDMSG"),
            (opcode::Recv::CODE, "RECV"),
            (opcode::Close::CODE, "CLOSE"),
        ];
        match needed.iter().find(|(code, _)| !probe.is_supported(*code)) {
            Some((_, name)) => Ok(Err(name)),
            None => Ok(Ok(())),
        }
    }

    /// Whether a direct descriptor can become a descriptor again (Linux 6.8), which rarer things need.
    pub(super) fn can_install(&self) -> bool {
        let mut probe = Probe::new();
        let probed = self.io.submitter().register_probe(&mut probe);
        probed.is_ok() && probe.is_supported(opcode::FixedFdInstall::CODE)
    }

    /// Queues an operation.
    ///
    /// # Safety
    /// Memory that `entry` refers to must stay where it is until the operation has completed; and as it is, if
    /// the kernel reads it, or untouched, if the kernel writes to it.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        if self.beyond.is_empty() {
            // SAFETY: demanded from the caller.
            if unsafe { self.io.submission().push(&entry) }.is_ok() {
                return;
            }
            // If it fails, the next wait reports the error.
            let _ = self.submit();
        }
        self.beyond.push_back(entry);
        self.refill();
    }

    /// Moves what has been kept into the queue.
    fn refill(&mut self) {
        let mut queue = self.io.submission();
        while let Some(entry) = self.beyond.front() {
            // SAFETY: whoever pushed the entry has promised what it takes, until its completion.
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            self.beyond.pop_front();
        }
    }

    /// Whether few more entries fit without a call.
    pub(super) fn is_nearly_full(&mut self) -> bool {
        let queue = self.io.submission();
        queue.len() + 4 > queue.capacity()
    }

    /// Polls until it is cancelled, a completion per edge.
    pub(super) fn poll(&mut self, token: Token, target: Target, flags: PollFlags) {
        let flags = u32::from(flags.bits());
        let entry = on!(target, |fd| opcode::PollAdd::new(fd, flags).multi(true).build());
        // SAFETY: it refers to no memory.
        unsafe { self.push(entry.user_data(token.to_bits())) };
    }

    /// Polls once.
    pub(super) fn poll_once(&mut self, token: Token, target: Target, flags: PollFlags) {
        let entry = on!(target, |fd| opcode::PollAdd::new(fd, u32::from(flags.bits())).build());
        // SAFETY: it refers to no memory.
        unsafe { self.push(entry.user_data(token.to_bits())) };
    }

    /// Cancels the operation that was given this token. It completes nevertheless, mostly with ECANCELED.
    pub(super) fn cancel(&mut self, token: Token) {
        let entry = opcode::AsyncCancel::new(token.to_bits()).build();
        // SAFETY: it refers to no memory.
        unsafe { self.push(skip_success(entry)) };
    }

    /// Closes a descriptor after everything that has been pushed before has been begun: so no entry that names
    /// it by its number meets another file.
    pub(super) fn close(&mut self, fd: OwnedFd) {
        let entry = opcode::Close::new(Fd(fd.into_raw_fd())).build();
        // SAFETY: it refers to no memory.
        unsafe { self.push(skip_success(entry)) };
    }

    /// Closes a direct descriptor, likewise; the slot may be used again when `token` completes.
    pub(super) fn close_slot(&mut self, token: Token, slot: u32) {
        let entry = opcode::Close::new(Fixed(slot)).build().user_data(token.to_bits());
        // SAFETY: it refers to no memory.
        unsafe { self.push(entry) };
    }

    /// Makes a free slot refer to the file of `fd`, now.
    pub(super) fn fill_slot(&mut self, slot: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.io.submitter().register_files_update(slot, &[fd.as_raw_fd()]).map(drop)
    }

    /// A descriptor for what is in a slot, now. What has been pushed before is submitted as well.
    ///
    /// # Errors
    /// The kernel's: out of descriptors; EINVAL before Linux 6.8.
    pub(super) fn install(&mut self, slot: u32) -> io::Result<OwnedFd> {
        self.installs = self.installs.wrapping_add(1);
        let token = Token::Installed(self.installs).to_bits();
        let entry = opcode::FixedFdInstall::new(Fixed(slot), 0).build().user_data(token);
        // SAFETY: it refers to no memory.
        unsafe { self.push(entry) };
        self.submit()?;
        loop {
            for completion in self.io.completion().map(Completion::from) {
                if completion.token != token {
                    self.aside.push_back(completion);
                    continue;
                }
                return Ok(completion.installed()?);
            }
            // It has been run by the submission, and can only be behind a queue that was full.
            self.enter(Some(Duration::ZERO))?;
        }
    }

    /// Hands the kernel what has been pushed, and returns at once.
    ///
    /// # Errors
    /// The kernel's (out of memory); what it didn't take stays in the queue.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.enable()?;
        loop {
            self.refill();
            if self.io.submission().is_empty() {
                return Ok(());
            }
            match self.io.submit() {
                Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Hands the kernel what has been pushed, and waits until there is a completion or `timeout` has passed.
    /// It may return for no reason.
    ///
    /// # Errors
    /// The kernel's, where it can't go on.
    pub(super) fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if !self.beyond.is_empty() {
            self.submit()?;
        }
        self.enable()?;
        let entered = match timeout {
            None => self.io.submit_and_wait(1),
            Some(Duration::ZERO) => {
                let count = self.io.submission().len() as u32;
                // SAFETY: it waits for nothing and has no argument.
                unsafe { self.io.submitter().enter::<()>(count, 0, EnterFlags::GETEVENTS.bits(), None) }
            }
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                self.io.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // The time has passed; a signal; completions must be taken first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// As [`Ring::enter`], until there are `enough` completions or nothing is put off any more: an enter does
    /// only some 20 of the things that the kernel has put off (Linux 6.13). Half a queue is always enough, as one
    /// that is full ends the polls that find it so.
    #[inline]
    pub(super) fn enter_for(&mut self, enough: usize, timeout: Option<Duration>) -> io::Result<()> {
        self.enter(timeout)?;
        if self.has_work() { self.enter_again(enough) } else { Ok(()) }
    }

    fn enter_again(&mut self, enough: usize) -> io::Result<()> {
        let enough = enough.min(self.io.completion().capacity() / 2);
        let mut told = self.aside.len() + self.io.completion().len();
        while self.has_work() && told < enough {
            self.enter(Some(Duration::ZERO))?;
            let now = self.aside.len() + self.io.completion().len();
            // The sign may be stale: the kernel queues work and raises the sign in two steps, and when the work is
            // done in between, nothing lowers it until there is work again. Waiting for it would be for ever.
            if now == told {
                break;
            }
            told = now;
        }
        Ok(())
    }

    /// Has the kernel do all that it has put off, until there is a completion; says whether there is one. If there
    /// is none, nothing is put off now, whatever [`Ring::has_work`] says: its sign may be stale (see
    /// [`Ring::enter_for`]), and what it tells of may end without a completion, as a poll whose data has been read.
    pub(super) fn run_deferred_work(&mut self) -> io::Result<bool> {
        // Waiting for one completion, if only until now, makes the kernel go on for as long as anything is put off.
        let now = Timespec::new();
        match self.io.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&now)) {
            Ok(_) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
        Ok(self.has_completions())
    }

    /// Enters, without waiting, if there is anything to submit, or anything that the kernel has put off.
    pub(super) fn enter_if_busy(&mut self, enough: usize) -> io::Result<()> {
        let queue = self.io.submission();
        let idle = queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() && self.beyond.is_empty();
        drop(queue);
        if idle { Ok(()) } else { self.enter_for(enough, Some(Duration::ZERO)) }
    }

    /// How many completions there are to take now.
    #[inline]
    pub(super) fn completions(&mut self) -> usize {
        self.aside.len() + self.io.completion().len()
    }

    /// Takes the next completion.
    #[inline]
    pub(super) fn next_completion(&mut self) -> Option<Completion> {
        let completion = match self.aside.is_empty() {
            true => self.io.completion().next().map(Completion::from)?,
            false => self.aside.pop_front()?,
        };
        if self.installs > 0 && matches!(Token::from_bits(completion.token), Token::Installed(_)) {
            // Nobody waits for it: it failed to be submitted when it was asked for.
            drop(completion.installed());
        }
        Some(completion)
    }

    /// Whether completions have been taken and wait here, which the kernel knows nothing of.
    #[inline]
    pub(super) fn has_aside(&self) -> bool {
        !self.aside.is_empty()
    }

    /// Whether there are completions to take, in the queue or behind it.
    pub(super) fn has_completions(&mut self) -> bool {
        self.has_aside() || !self.io.completion().is_empty() || self.io.submission().cq_overflow()
    }

    /// Whether the kernel has put work off until the next enter.
    #[inline]
    pub(super) fn has_work(&mut self) -> bool {
        self.io.submission().taskrun()
    }

    /// Turns on or off the sign that a ring with slots gives. What was to tell when it is turned on is told by
    /// [`Ring::has_work`] afterwards.
    pub(super) fn signal(&mut self, on: bool) {
        let completions = self.io.completion();
        if on {
            completions.enable_eventfd();
            // The kernel notes work, then looks whether to signal; we allow the signal, then look for work.
            fence(Ordering::SeqCst);
        } else {
            completions.disable_eventfd();
        }
    }

    /// Cancels every operation, and waits at most `timeout` for all to complete.
    pub(super) fn cancel_all(&mut self, timeout: Duration) -> io::Result<()> {
        self.submit()?;
        self.io.submitter().register_sync_cancel(Some(Timespec::from(timeout)), CancelBuilder::any())
    }

    /// Closes everything in the slots.
    pub(super) fn empty_slots(&mut self) -> io::Result<()> {
        self.io.submitter().unregister_files()
    }

    #[inline]
    fn enable(&mut self) -> io::Result<()> {
        if self.enabled {
            return Ok(());
        }
        self.io.submitter().register_enable_rings()?;
        self.enabled = true;
        Ok(())
    }
}

/// An operation that completes only if it fails; the completion is ignored.
fn skip_success(entry: squeue::Entry) -> squeue::Entry {
    entry.user_data(Token::Ignored.to_bits()).flags(squeue::Flags::SKIP_SUCCESS)
}
