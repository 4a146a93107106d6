//! The card itself: its model, transfer rates both ways, instruction rates, the cost of a launch.

use recoded_cuda::{Direction, IssueRates, TECHNIQUES};
use serde::Serialize;
use serde_json::{Value, json};

use super::bed::Bed;

/// One copy.
#[derive(Clone, Debug, Serialize)]
pub struct Copy {
    /// `in`, `out`, or `both` at once.
    pub direction: &'static str,
    /// Whether the host's memory is pinned.
    pub is_pinned: bool,
    /// Bytes, each way.
    pub bytes: usize,
    /// Bytes a second, each way.
    pub rate: f64,
}

/// Measurements of the card itself.
#[derive(Clone, Debug)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// Everything, for JSON.
    pub described: Value,
    /// Copies of all sizes.
    pub copies: Vec<Copy>,
    /// Instruction rates.
    pub rates: Option<IssueRates>,
}

impl Card {
    /// The best rate of a direction from pinned memory.
    pub fn copy_rate(&self, direction: &str) -> Option<f64> {
        let pinned = self.copies.iter().filter(|copy| copy.is_pinned);
        let rates = pinned.filter(|copy| copy.direction == direction).map(|copy| copy.rate);
        rates.max_by(f64::total_cmp)
    }

    /// Upper limit of a technique in bytes of results per second, from the card's instruction
    /// rates.
    pub fn limit(&self, technique: &str, n: usize) -> Option<f64> {
        let technique = TECHNIQUES.iter().find(|known| known.name == technique)?;
        Some(technique.limit(&self.rates?)? / n as f64)
    }
}

/// Measures the card, if there is one.
pub fn measure(bed: &mut Bed) -> Option<Card> {
    let info = bed.card.as_ref()?.info().clone();
    let copies = copies(bed);
    let (sample, rounds) = (bed.scale.sample, bed.scale.probe_rounds);
    let card = bed.card.as_mut()?;
    let cost = card.launch_cost(sample);
    let rates = card.issue_rates(rounds, sample);
    for error in [cost.as_ref().err(), rates.as_ref().err()].into_iter().flatten() {
        bed.note("measuring the card", error);
    }
    let (cost, rates) = (cost.ok(), rates.ok());
    bed.bar.inc(1);
    let described = json!({
        "name": info.name,
        "compute_capability": f64::from(info.capability) / 10.0,
        "multiprocessors": info.multiprocessors,
        "memory_bytes": info.memory_bytes,
        "driver": info.driver,
        "launch_interval_seconds": cost.map(|cost| cost.interval),
        "launch_latency_seconds": cost.map(|cost| cost.latency),
        "warp_instructions_per_second": rates.map(|rates| rates.instructions),
        "shared_accesses_per_second": rates.map(|rates| rates.accesses),
        "binary_products_per_second": rates.map(|rates| rates.products),
        "wide_binary_products_per_second": rates.map(|rates| rates.wide_products),
        "copies": copies,
    });
    Some(Card { name: info.name, described, copies, rates })
}

fn copies(bed: &mut Bed) -> Vec<Copy> {
    let (mut copies, sample) = (Vec::new(), bed.scale.sample);
    for &bytes in bed.scale.copies {
        for is_pinned in [true, false] {
            for (direction, name) in DIRECTIONS {
                let Some(card) = &mut bed.card else { return copies };
                match card.copy_seconds(direction, bytes, is_pinned, sample) {
                    Ok(seconds) => {
                        let rate = bytes as f64 / seconds;
                        copies.push(Copy { direction: name, is_pinned, bytes, rate });
                    }
                    Err(error) => bed.note("copies", &error),
                }
            }
        }
    }
    copies
}

const DIRECTIONS: [(Direction, &str); 3] =
    [(Direction::In, "in"), (Direction::Out, "out"), (Direction::Both, "both")];
