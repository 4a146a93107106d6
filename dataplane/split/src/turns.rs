//! Writes of connections take turns when bytes in flight have no more room.
//!
//! quinn wakes all writers that wait for room, and the newest ones take it: of 2000 connections a
//! third got everything. Here a writer has a turn for what there is room for, and then waits behind
//! the others.
//!
//! ```text
//!  turn (first come, first served) -> quinn takes bytes: next turn
//!                                  -> quinn takes none:  the stream or all streams have no room:
//!                                     without a turn until quinn wakes it, then
//!  turn                            -> kept until quinn takes bytes: the stream has room now
//! ```
//! So a stream without room of its own, as its host does not read, keeps no other one waiting.

use bytes::Bytes;
use quinn::SendStream;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Most bytes of a turn: with more, shares of short times differ; with fewer, turns cost more.
const TURN_BYTES: usize = 8 << 10;

/// Turns of the streams of a connection between the edges.
#[derive(Debug, Default)]
pub(crate) struct Turns(tokio::sync::Mutex<()>);

/// Wakes a task, and notes that it was woken for this purpose: the task waits for others, too.
struct Woken(Mutex<State>);

struct State {
    is_woken: bool,
    task: Waker,
}

impl Woken {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when it was woken.
    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        state.task.clone_from(context.waker());
        if state.is_woken { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let mut state = self.state();
        state.is_woken = true;
        state.task.wake_by_ref();
    }
}

impl Turns {
    /// Writes all of `bytes`.
    pub(crate) async fn write(&self, stream: &mut SendStream, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut left = bytes.len().min(TURN_BYTES);
            let mut chunks = [bytes.split_to(left)];
            while left > 0 {
                left -= self.write_some(stream, &mut chunks).await?;
            }
        }
        Ok(())
    }

    /// Writes as many of the bytes as there is room for, at least one; returns their number.
    async fn write_some(&self, stream: &mut SendStream, bytes: &mut [Bytes]) -> io::Result<usize> {
        let mut attempt = pin!(stream.write_chunks(bytes));
        let task = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        let woken = Arc::new(Woken(Mutex::new(State { is_woken: false, task })));
        let turn = self.0.lock().await;
        let waker = Waker::from(Arc::clone(&woken));
        let first = attempt.as_mut().poll(&mut Context::from_waker(&waker));
        drop(turn);
        if let Poll::Ready(written) = first {
            return Ok(written?.bytes);
        }
        poll_fn(|context| woken.poll(context)).await;
        let _turn = self.0.lock().await;
        Ok(attempt.await?.bytes)
    }
}
