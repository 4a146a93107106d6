//! Servers behind the other edge, requested for hosts here.

use crate::connections::Connections;
use crate::link::Link;
use crate::request::{Answer, Request};
use quinn::{RecvStream, SendStream};
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for the other edge, and for the answer of the server behind it.
const PATIENCE: Duration = Duration::from_secs(75);

/// A stream to a server that has answered.
pub(crate) struct Requested {
    pub(crate) out: SendStream,
    pub(crate) back: RecvStream,
}

/// Has the other edge connect to a server. Waits until that has answered, or for [`PATIENCE`].
pub(crate) async fn request(request: Request, link: &Link) -> Result<Requested, Answer> {
    let asked = async {
        let (mut out, mut back) = link.open().await?;
        request.send(&mut out).await?;
        let answer = Answer::receive(&mut back).await?;
        Ok::<_, io::Error>((Requested { out, back }, answer))
    };
    match timeout(PATIENCE, asked).await {
        Ok(Ok((requested, Answer::Connected))) => Ok(requested),
        Ok(Ok((_, answer))) => Err(answer),
        Ok(Err(error)) => {
            tracing::debug!(server = %request.server, %error, "the other edge has not answered");
            Err(Answer::Silent)
        }
        Err(_) => Err(Answer::Silent),
    }
}

/// Counts a connection that did not reach its server.
pub(crate) fn count(connections: &Connections, request: &Request, answer: Answer) {
    tracing::debug!(host = %request.host, server = %request.server, ?answer, "not connected");
    let counters = &mut connections.count().counters;
    match answer {
        Answer::Full => counters.full += 1,
        _ => counters.refused += 1,
    }
}
