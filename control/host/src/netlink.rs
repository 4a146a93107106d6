//! Requests to rtnetlink.

use futures_util::stream::{Stream, StreamExt};
use rtnetlink::Error;
use std::pin::pin;

/// Collects the answers to a request, up to a limit.
pub async fn all<T>(
    answers: impl Stream<Item = Result<T, Error>>,
    most: usize,
) -> Result<Vec<T>, Error> {
    let mut answers = pin!(answers);
    let mut all = Vec::new();
    while let Some(answer) = answers.next().await {
        let answer = answer?;
        if all.len() < most {
            all.push(answer);
        }
    }
    Ok(all)
}
