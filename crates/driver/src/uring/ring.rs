//! One io_uring instance: the queue of what the kernel shall do, and of what it has done.
//!
//! Set up for one thread that enters often: the kernel completes work only inside an enter of that thread
//! (DEFER_TASKRUN, Linux 6.1), and a call that submits runs what can run at once right there. The ring belongs
//! to the thread that first enters it (it is created disabled), so a driver may be made elsewhere.
//!
//! What is pushed never fails and keeps its order: entries beyond the queue are kept here until there is room.
//!
//! Invariant: an entry's memory is valid until its completion; [`Ring::push`] demands it, and everything else
//! here that pushes refers to no memory.

#![allow(unsafe_code)] // What the kernel reads, it reads by address.

use super::token::Token;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::Duration;

/// Completions per submission: multishot polls complete without having been submitted each time.
const COMPLETIONS_PER_ENTRY: u32 = 4;

/// See the module's documentation.
pub(super) struct Ring {
    io: IoUring,
    enabled: bool,
    /// Entries that found no room, in order.
    beyond: VecDeque<squeue::Entry>,
}

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
            .setup_submit_all()
            .setup_r_disabled()
            .dontfork()
            .setup_cqsize(entries.next_power_of_two().saturating_mul(COMPLETIONS_PER_ENTRY))
            .build(entries)?;
        Ok(Self { io, enabled: false, beyond: VecDeque::new() })
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
            (opcode::Close::CODE, "CLOSE"),
        ];
        match needed.iter().find(|(code, _)| !probe.is_supported(*code)) {
            Some((_, name)) => Ok(Err(name)),
            None => Ok(Ok(())),
        }
    }

    /// Queues an operation.
    ///
    /// # Safety
    /// Memory that `entry` refers to must stay where it is, and as it is, until the operation has completed.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        if self.beyond.is_empty() {
            // SAFETY: demanded from the caller.
            if unsafe { self.io.submission().push(&entry) }.is_ok() {
                return;
            }
            // Should it fail, whoever waits next hears of it.
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

    /// Polls `fd` until it is cancelled, a completion per edge.
    pub(super) fn poll(&mut self, token: Token, fd: BorrowedFd<'_>, flags: PollFlags) {
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), u32::from(flags.bits())).multi(true);
        // SAFETY: it refers to no memory.
        unsafe { self.push(entry.build().user_data(token.to_bits())) };
    }

    /// Polls `fd` once.
    pub(super) fn poll_once(&mut self, token: Token, fd: BorrowedFd<'_>, flags: PollFlags) {
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), u32::from(flags.bits()));
        // SAFETY: it refers to no memory.
        unsafe { self.push(entry.build().user_data(token.to_bits())) };
    }

    /// Cancels the operation that was given this token. It completes nevertheless, mostly with ECANCELED.
    pub(super) fn cancel(&mut self, token: Token) {
        let entry = opcode::AsyncCancel::new(token.to_bits()).build();
        // SAFETY: it refers to no memory.
        unsafe { self.push(quiet(entry)) };
    }

    /// Closes a descriptor after everything that has been pushed before has been begun: so no entry that names
    /// it by its number meets another file.
    pub(super) fn close(&mut self, fd: OwnedFd) {
        let entry = opcode::Close::new(Fd(fd.into_raw_fd())).build();
        // SAFETY: it refers to no memory.
        unsafe { self.push(quiet(entry)) };
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
            // The time has passed; a signal; completions must be taken first.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY)) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes at most `max` completions that are there, and appends them to `into`.
    pub(super) fn completions(&mut self, into: &mut Vec<Completion>, max: usize) {
        into.extend(self.io.completion().take(max).map(|entry| Completion {
            token: entry.user_data(),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
        }));
    }

    /// Whether there are completions to take, in the queue or behind it.
    pub(super) fn has_completions(&mut self) -> bool {
        !self.io.completion().is_empty() || self.io.submission().cq_overflow()
    }

    /// Cancels every operation, and waits at most `timeout` for the kernel to let go of each.
    pub(super) fn cancel_all(&mut self, timeout: Duration) -> io::Result<()> {
        self.submit()?;
        self.io.submitter().register_sync_cancel(Some(Timespec::from(timeout)), CancelBuilder::any())
    }

    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.io.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }
}

/// An operation that only tells of failure, which nobody listens to.
fn quiet(entry: squeue::Entry) -> squeue::Entry {
    entry.user_data(Token::Ignored.to_bits()).flags(squeue::Flags::SKIP_SUCCESS)
}
