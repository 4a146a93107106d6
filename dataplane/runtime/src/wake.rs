//! Sleeping until an event: one `ppoll` over sockets, tunnels and an eventfd that other threads
//! write to wake this one.

use recoded_pipeline::params::Nanos;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Wakes one worker from another thread.
#[derive(Debug)]
pub(crate) struct Waker {
    fd: OwnedFd,
}

impl Waker {
    pub(crate) fn open() -> Result<Waker, std::io::Error> {
        Ok(Waker { fd: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)? })
    }

    pub(crate) fn wake(&self) {
        // Fails only when the counter is full, and then the worker is about to wake anyway.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    fn clear(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.fd, &mut count);
    }
}

/// The descriptors one worker waits on.
pub(crate) struct Sleeper<'a> {
    waker: &'a Waker,
    /// By link.
    sockets: &'a [Vec<OwnedFd>],
    /// Queues of tunnels, each with the index of its tunnel.
    queues: Vec<(usize, BorrowedFd<'a>)>,
    polls: Vec<PollFd<'a>>,
}

impl<'a> Sleeper<'a> {
    pub(crate) fn new(
        waker: &'a Waker,
        sockets: &'a [Vec<OwnedFd>],
        queues: Vec<(usize, BorrowedFd<'a>)>,
    ) -> Sleeper<'a> {
        let count = sockets.iter().map(Vec::len).sum::<usize>();
        let polls = Vec::with_capacity(1 + count + queues.len());
        Sleeper { waker, sockets, queues, polls }
    }

    /// Sleeps until a socket has packets, a tunnel that `wants` names has packets, another thread
    /// wakes this one, or `timeout` has passed. Returns early on a signal. A socket that `hears`
    /// does not name is not polled: one whose interface is gone is always ready with an error.
    pub(crate) fn sleep(
        &mut self,
        timeout: Nanos,
        mut wants: impl FnMut(usize) -> bool,
        mut hears: impl FnMut(usize) -> bool,
    ) {
        let sockets = self.sockets.iter().enumerate();
        let heard = sockets.filter(|(index, _)| hears(*index)).flat_map(|(_, fds)| fds);
        let heard = heard.map(AsFd::as_fd);
        let wanted = self.queues.iter().filter(|(tunnel, _)| wants(*tunnel)).map(|(_, fd)| *fd);
        self.polls.clear();
        self.polls.push(PollFd::new(&self.waker.fd, PollFlags::IN));
        self.polls
            .extend(heard.chain(wanted).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = Timespec {
            tv_sec: (timeout / 1_000_000_000) as i64,
            tv_nsec: (timeout % 1_000_000_000) as i64,
        };
        // An error (a signal, memory) only causes an early return.
        let _ = poll(&mut self.polls, Some(&timeout));
        if self.polls[0].revents().contains(PollFlags::IN) {
            self.waker.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn sleep_ends_after_the_timeout() {
        let waker = Waker::open().unwrap();
        let start = Instant::now();
        Sleeper::new(&waker, &[], Vec::new()).sleep(3_000_000, |_| true, |_| true);
        assert!(start.elapsed() >= Duration::from_millis(3));
    }

    #[test]
    fn sleep_ends_when_woken_and_forgets_the_wakeup() {
        let waker = Waker::open().unwrap();
        waker.wake();
        waker.wake();
        let start = Instant::now();
        Sleeper::new(&waker, &[], Vec::new()).sleep(10_000_000_000, |_| true, |_| true);
        assert!(start.elapsed() < Duration::from_secs(5));
        let start = Instant::now();
        Sleeper::new(&waker, &[], Vec::new()).sleep(3_000_000, |_| true, |_| true);
        assert!(start.elapsed() >= Duration::from_millis(3));
    }
}
