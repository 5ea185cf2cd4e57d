//! One io_uring instance: its submission queue and its completion queue.
//!
//! Set up for one thread that enters often: the kernel completes work only inside an enter of that thread
//! (DEFER_TASKRUN, Linux 6.1), and a submitting call runs everything that can run at once. The ring belongs
//! to the thread that first enters it (it is created disabled), so a driver may be made on another thread.
//!
//! Pushing an entry never fails and keeps the order: entries beyond the queue's capacity are kept here until
//! there is room.
//!
//! Invariant: an entry's memory is valid until its completion; [`Ring::push`] requires it, and all other
//! pushing code here refers to no memory.

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

/// Number of completions per submission: multishot polls complete without being submitted each time.
const COMPLETIONS_PER_ENTRY: u32 = 4;

/// An io_uring instance.
pub(super) struct Ring {
    io: IoUring,
    enabled: bool,
    /// Entries that found no room, in order.
    beyond: VecDeque<squeue::Entry>,
    /// Completions that were taken while searching for another one, in order.
    aside: VecDeque<Completion>,
    /// Number of file descriptors installed so far.
    installs: u32,
}

/// A socket, as a ring identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A file descriptor of the process.
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

/// The kernel's report about an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) token: u64,
    /// The result, as of a system call: an errno if negative.
    pub(super) result: i32,
    /// `true` if the operation continues and will report again.
    pub(super) more: bool,
}

impl Completion {
    pub(super) fn result(self) -> Result<u32, Errno> {
        u32::try_from(self.result).map_err(|_| Errno::from_raw_os_error(-self.result))
    }

    /// Returns the result of an install. Call it once.
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
    /// Makes a ring whose submission queue has `entries` (rounded up to a power of two).
    ///
    /// # Errors
    /// ENOSYS or EPERM if io_uring is missing or forbidden, EINVAL if it is too old.
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

    /// Like [`Ring::new`], with a table of `slots` for direct descriptors. The ring signals `wake` whenever
    /// it has a completion and [`Ring::signal`] is enabled.
    pub(super) fn with_slots(entries: u32, slots: u32, wake: BorrowedFd<'_>) -> io::Result<Self> {
        let mut ring = Self::new(entries)?;
        ring.io.submitter().register_files_sparse(slots)?;
        ring.io.submitter().register_eventfd(wake.as_raw_fd())?;
        ring.signal(false);
        Ok(ring)
    }

    /// Checks that the kernel supports every operation that is used here. Returns the name of the first
    /// unsupported one.
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

    /// Returns `true` if a direct descriptor can become a file descriptor again (Linux 6.8), which rarer
    /// operations need.
    pub(super) fn can_install(&self) -> bool {
        let mut probe = Probe::new();
        let probed = self.io.submitter().register_probe(&mut probe);
        probed.is_ok() && probe.is_supported(opcode::FixedFdInstall::CODE)
    }

    /// Queues an operation.
    ///
    /// # Safety
    /// Memory to which `entry` refers must stay in place until the operation has completed. Until then it
    /// must stay unchanged if the kernel reads it, and untouched if the kernel writes to it.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        if self.beyond.is_empty() {
            // SAFETY: required from the caller.
            if unsafe { self.io.submission().push(&entry) }.is_ok() {
                return;
            }
            // If submitting fails, the next wait reports the error.
            let _ = self.submit();
        }
        self.beyond.push_back(entry);
        self.refill();
    }

    /// Moves kept entries into the queue.
    fn refill(&mut self) {
        let mut queue = self.io.submission();
        while let Some(entry) = self.beyond.front() {
            // SAFETY: the caller that pushed the entry has guaranteed its requirements until its completion.
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            self.beyond.pop_front();
        }
    }

    /// Returns `true` if only few more entries fit without a call.
    pub(super) fn is_nearly_full(&mut self) -> bool {
        let queue = self.io.submission();
        queue.len() + 4 > queue.capacity()
    }

    /// Polls until it is cancelled, with a completion per edge.
    pub(super) fn poll(&mut self, token: Token, target: Target, flags: PollFlags) {
        let flags = u32::from(flags.bits());
        let entry = on!(target, |fd| opcode::PollAdd::new(fd, flags).multi(true).build());
        // SAFETY: the entry refers to no memory.
        unsafe { self.push(entry.user_data(token.to_bits())) };
    }

    /// Polls once.
    pub(super) fn poll_once(&mut self, token: Token, target: Target, flags: PollFlags) {
        let entry = on!(target, |fd| opcode::PollAdd::new(fd, u32::from(flags.bits())).build());
        // SAFETY: the entry refers to no memory.
        unsafe { self.push(entry.user_data(token.to_bits())) };
    }

    /// Cancels the operation with this token. It still completes, usually with ECANCELED.
    pub(super) fn cancel(&mut self, token: Token) {
        let entry = opcode::AsyncCancel::new(token.to_bits()).build();
        // SAFETY: the entry refers to no memory.
        unsafe { self.push(skip_success(entry)) };
    }

    /// Closes a file descriptor after all earlier entries have been started, so that no entry with its number
    /// meets another file.
    pub(super) fn close(&mut self, fd: OwnedFd) {
        let entry = opcode::Close::new(Fd(fd.into_raw_fd())).build();
        // SAFETY: the entry refers to no memory.
        unsafe { self.push(skip_success(entry)) };
    }

    /// Closes a direct descriptor in the same way; the slot may be reused when `token` completes.
    pub(super) fn close_slot(&mut self, token: Token, slot: u32) {
        let entry = opcode::Close::new(Fixed(slot)).build().user_data(token.to_bits());
        // SAFETY: the entry refers to no memory.
        unsafe { self.push(entry) };
    }

    /// Makes a free slot refer to the file of `fd`, now.
    pub(super) fn fill_slot(&mut self, slot: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.io.submitter().register_files_update(slot, &[fd.as_raw_fd()]).map(drop)
    }

    /// Makes a file descriptor for a slot's file, and waits for the result. Also submits all earlier entries.
    ///
    /// # Errors
    /// The kernel is out of file descriptors; EINVAL before Linux 6.8.
    pub(super) fn install(&mut self, slot: u32) -> io::Result<OwnedFd> {
        self.installs = self.installs.wrapping_add(1);
        let token = Token::Installed(self.installs).to_bits();
        let entry = opcode::FixedFdInstall::new(Fixed(slot), 0).build().user_data(token);
        // SAFETY: the entry refers to no memory.
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
            // The submission has run the install, so its completion can only be behind a full queue.
            self.enter(Some(Duration::ZERO))?;
        }
    }

    /// Submits all pushed entries, and returns at once.
    ///
    /// # Errors
    /// The kernel is out of memory; entries that it didn't accept stay in the queue.
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

    /// Submits all pushed entries, and waits until there is a completion or `timeout` has passed. Spurious
    /// returns are possible.
    ///
    /// # Errors
    /// The kernel can't continue.
    pub(super) fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if !self.beyond.is_empty() {
            self.submit()?;
        }
        self.enable()?;
        let entered = match timeout {
            None => self.io.submit_and_wait(1),
            Some(Duration::ZERO) => {
                let count = self.io.submission().len() as u32;
                // SAFETY: the call waits for nothing and has no argument.
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
                // The timeout has passed, a signal has come, or completions must be taken first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Like [`Ring::enter`], until there are `enough` completions or no work is deferred any longer: an enter
    /// only does some 20 items of the kernel's deferred work (Linux 6.13). Half a queue is always enough,
    /// because a full one ends the polls that find it full.
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
            // The flag may be stale: the kernel queues work and sets the flag in two steps, and if the work
            // is done in between, the flag stays set until there is work again. Waiting for it could take
            // forever.
            if now == told {
                break;
            }
            told = now;
        }
        Ok(())
    }

    /// Makes the kernel do all deferred work until there is a completion. Returns `true` if there is one. If
    /// there is none, no work is deferred now, whatever [`Ring::has_work`] returns: its flag may be stale
    /// (see [`Ring::enter_for`]), and deferred work may end without a completion, such as a poll whose data
    /// has been read.
    pub(super) fn run_deferred_work(&mut self) -> io::Result<bool> {
        // Waiting for one completion, even with an expired timeout, makes the kernel continue as long as work
        // is deferred.
        let now = Timespec::new();
        match self.io.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&now)) {
            Ok(_) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
        Ok(self.has_completions())
    }

    /// Enters, without waiting, if there are entries to submit, or if the kernel has deferred work.
    pub(super) fn enter_if_busy(&mut self, enough: usize) -> io::Result<()> {
        let queue = self.io.submission();
        let idle = queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() && self.beyond.is_empty();
        drop(queue);
        if idle { Ok(()) } else { self.enter_for(enough, Some(Duration::ZERO)) }
    }

    /// Returns the number of completions that can be taken now.
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
            // The requester has given up, because the submission failed at the time of the request.
            drop(completion.installed());
        }
        Some(completion)
    }

    /// Returns `true` if completions have been taken and wait here, unknown to the kernel.
    #[inline]
    pub(super) fn has_aside(&self) -> bool {
        !self.aside.is_empty()
    }

    /// Returns `true` if there are completions to take, in the queue or behind it.
    pub(super) fn has_completions(&mut self) -> bool {
        self.has_aside() || !self.io.completion().is_empty() || self.io.submission().cq_overflow()
    }

    /// Returns `true` if the kernel has deferred work until the next enter.
    #[inline]
    pub(super) fn has_work(&mut self) -> bool {
        self.io.submission().taskrun()
    }

    /// Enables or disables the signal of a ring with slots. [`Ring::has_work`] afterwards reports work from
    /// before it was enabled.
    pub(super) fn signal(&mut self, on: bool) {
        let completions = self.io.completion();
        if on {
            completions.enable_eventfd();
            // The kernel queues work, then checks whether to signal; we enable the signal, then check for
            // work.
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

/// Makes an operation complete only if it fails; the completion is ignored.
fn skip_success(entry: squeue::Entry) -> squeue::Entry {
    entry.user_data(Token::Ignored.to_bits()).flags(squeue::Flags::SKIP_SUCCESS)
}
