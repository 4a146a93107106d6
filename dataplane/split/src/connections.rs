//! The bound on connections, and their counters, which the supervisor of `recoded` reads.

use crate::turns::Turns;
use recoded_counters::split::SplitReport;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// Most connections of hosts at once, of both directions; further ones are reset.
pub(crate) const CONNECTIONS_MAX: usize = 4096;

/// Most hosts that may stall before the one that has for long is reset.
pub(crate) const STALLED_MAX: usize = 28;

/// Interval of reports to the supervisor.
const INTERVAL: Duration = Duration::from_secs(1);

/// All connections of this edge.
#[derive(Debug)]
pub(crate) struct Connections {
    places: Arc<Semaphore>,
    report: Mutex<SplitReport>,
    /// Connections whose host takes nothing.
    stalled: AtomicUsize,
    /// Turns of hosts here, and of servers here.
    pub(crate) turns: [Turns; 2],
}

/// A connection whose host takes nothing, until dropped.
#[derive(Debug)]
pub(crate) struct Stalled<'a>(&'a AtomicUsize);

impl Drop for Stalled<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    pub(crate) fn new() -> Connections {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Connections {
            places,
            report: Mutex::default(),
            stalled: AtomicUsize::new(0),
            turns: Default::default(),
        }
    }

    /// Notes a connection whose host takes nothing.
    pub(crate) fn stalled(&self) -> Stalled<'_> {
        self.stalled.fetch_add(1, Ordering::Relaxed);
        Stalled(&self.stalled)
    }

    /// Connections whose host takes nothing, as far as there is room for them.
    pub(crate) fn stalled_count(&self) -> usize {
        self.stalled.load(Ordering::Relaxed).min(STALLED_MAX)
    }

    pub(crate) fn are_many_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed) > STALLED_MAX
    }

    /// A place for one connection, if there is one.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// The report, to be changed.
    pub(crate) fn count(&self) -> MutexGuard<'_, SplitReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, is_connected: bool) -> SplitReport {
        let open = CONNECTIONS_MAX.saturating_sub(self.places.available_permits()) as u64;
        SplitReport { is_connected, open, ..*self.count() }
    }

    /// Reports to the supervisor while it listens, then waits without end: another process watches
    /// for the end of the supervisor.
    pub(crate) async fn tell(&self, supervisor: &UnixStream, is_connected: impl Fn() -> bool) {
        loop {
            let line = format!("{}\n", self.report(is_connected()));
            match supervisor.try_write(line.as_bytes()) {
                // A supervisor that is slow misses a report: the next one has the same counters.
                Ok(written) if written == line.len() => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return std::future::pending().await,
            }
            sleep(INTERVAL).await;
        }
    }
}

/// The supervisor, at the other end of stdin.
pub(crate) fn supervisor() -> io::Result<UnixStream> {
    let stdin = std::os::unix::net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    stdin.set_nonblocking(true)?;
    UnixStream::from_std(stdin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_bounded_and_counted() {
        let connections = Connections::new();
        let places: Vec<_> = (0..CONNECTIONS_MAX).map_while(|_| connections.place()).collect();
        assert_eq!(places.len(), CONNECTIONS_MAX);
        assert!(connections.place().is_none());
        connections.count().counters.opened += 1;
        let report = connections.report(true);
        assert_eq!((report.open, report.counters.opened), (CONNECTIONS_MAX as u64, 1));
        drop(places);
        assert_eq!(connections.report(true).open, 0);
    }

    #[test]
    fn hosts_that_stall_are_counted_until_they_read() {
        let connections = Connections::new();
        let stalled: Vec<_> = (0..=STALLED_MAX).map(|_| connections.stalled()).collect();
        assert_eq!(connections.stalled_count(), STALLED_MAX);
        assert!(connections.are_many_stalled());
        drop(stalled);
        assert!(connections.stalled_count() == 0 && !connections.are_many_stalled());
    }

    #[tokio::test]
    async fn reports_are_lines_and_a_supervisor_that_does_not_read_delays_nothing() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let connections = Connections::new();
        tokio::time::timeout(INTERVAL / 2, connections.tell(&ours, || true))
            .await
            .expect_err("it continues");
        let mut bytes = [0; 64];
        let count = theirs.try_read(&mut bytes).expect("a report");
        let line = std::str::from_utf8(&bytes[..count]).expect("text").trim_end();
        assert!(line.parse::<SplitReport>().expect("a report").is_connected, "{line}");
        while ours.try_write(&[b'x'; 4096]).is_ok() {}
        tokio::time::timeout(INTERVAL / 2, connections.tell(&ours, || true))
            .await
            .expect_err("it continues");
    }
}
