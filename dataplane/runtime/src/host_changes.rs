//! Counts changes of this host's network, for callers that retry after one: a host name, for
//! example, may resolve once there is a route to a name server.

use futures_util::FutureExt;
use futures_util::stream::StreamExt;
use rtnetlink::MulticastGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Changes of addresses, counted by a thread that lives as long as the process.
#[derive(Clone, Debug)]
pub struct HostChanges(Arc<AtomicU64>);

impl HostChanges {
    /// Starts counting in the network namespace of the calling thread. Counts nothing if Linux
    /// refuses to report changes.
    pub fn watch() -> HostChanges {
        let changes = HostChanges(Arc::default());
        let counted = changes.clone();
        let run = move || {
            if let Err(error) = count(&counted.0) {
                tracing::debug!(%error, "changes of addresses are not reported");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("recoded-host".into()).spawn(run) {
            tracing::debug!(%error, "changes of addresses are not watched");
        }
        changes
    }

    /// Changes so far; those within [`PAUSE`] count as one.
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

fn count(changes: &AtomicU64) -> std::io::Result<()> {
    let executor =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    executor.block_on(async {
        // Routes are left out: a router may get millions, and those of a new address come with it.
        let groups = [MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
        let (connection, _handle, mut messages) = rtnetlink::new_multicast_connection(&groups)?;
        tokio::spawn(connection);
        while messages.next().await.is_some() {
            tokio::time::sleep(PAUSE).await;
            while messages.next().now_or_never().flatten().is_some() {}
            changes.fetch_add(1, Relaxed);
        }
        Ok(())
    })
}

/// A host that boots changes many addresses at once.
const PAUSE: Duration = Duration::from_millis(200);
