//! What a seed stands for: two paths with a liar, another graph, or a line.

use crate::scenario::Scenario;
use crate::{graph, liar_draw};

impl Scenario {
    /// Draws a scenario: any network conditions, any code; one in eight is not a line, and one in
    /// fifty has a liar.
    #[must_use]
    pub fn from_seed(seed: u64) -> Scenario {
        let graph = liar_draw::draw(seed).or_else(|| graph::draw(seed));
        graph.unwrap_or_else(|| Scenario::line_from_seed(seed))
    }
}
