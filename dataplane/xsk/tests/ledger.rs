//! Frame accounting against a model that remembers every reference by name.

use std::collections::HashMap;

use proptest::prelude::*;
use recoded_xsk::ledger::Ledger;

const TOTAL: u32 = 24;

#[derive(Clone, Debug)]
enum Step {
    Take,
    Lend,
    Receive(usize),
    Reclaim(usize),
    Retain(usize),
    Release(usize),
    Begin(usize),
    End(usize),
    Abandon,
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0..usize::MAX;
    prop_oneof![
        Just(Step::Take),
        Just(Step::Lend),
        any.clone().prop_map(Step::Receive),
        any.clone().prop_map(Step::Reclaim),
        any.clone().prop_map(Step::Retain),
        any.clone().prop_map(Step::Release),
        any.clone().prop_map(Step::Begin),
        any.prop_map(Step::End),
        Just(Step::Abandon),
    ]
}

/// References of the worker (`held`) and of transmit rings (`sent`), one entry each, and lent
/// frames.
#[derive(Default)]
struct Model {
    held: Vec<u32>,
    sent: Vec<u32>,
    lent: Vec<u32>,
}

impl Model {
    fn is_free(&self, frame: u32) -> bool {
        ![&self.held, &self.sent, &self.lent].iter().any(|place| place.contains(&frame))
    }

    fn apply(&mut self, ledger: &mut Ledger, step: &Step) {
        let pick = |from: &mut Vec<u32>, index: &usize| {
            (!from.is_empty()).then(|| from.swap_remove(index % from.len()))
        };
        match step {
            Step::Take | Step::Lend => self.hand_out(ledger, matches!(step, Step::Lend)),
            Step::Receive(index) => {
                if let Some(frame) = pick(&mut self.lent, index) {
                    ledger.receive(frame);
                    self.held.push(frame);
                }
            }
            Step::Reclaim(index) => {
                if let Some(frame) = pick(&mut self.lent, index) {
                    ledger.reclaim(frame);
                }
            }
            Step::Retain(index) => {
                if let Some(frame) = pick(&mut self.held, index) {
                    ledger.retain(frame);
                    self.held.extend([frame, frame]);
                }
            }
            Step::Release(index) => {
                if let Some(frame) = pick(&mut self.held, index) {
                    ledger.release(frame);
                }
            }
            Step::Begin(index) => {
                if let Some(frame) = pick(&mut self.held, index) {
                    ledger.begin_transmit(frame);
                    self.sent.push(frame);
                }
            }
            Step::End(index) => {
                if let Some(frame) = pick(&mut self.sent, index) {
                    ledger.end_transmit(frame);
                }
            }
            Step::Abandon => {
                ledger.abandon();
                self.held.clear();
            }
        }
    }

    fn hand_out(&mut self, ledger: &mut Ledger, lend: bool) {
        let free = (0..TOTAL).filter(|&frame| self.is_free(frame)).count();
        let frame = if lend { ledger.lend() } else { ledger.take() };
        assert_eq!(frame.is_some(), free > 0, "handed out exactly when one is free");
        if let Some(frame) = frame {
            assert!(self.is_free(frame), "frame {frame} was handed out twice");
            if lend { self.lent.push(frame) } else { self.held.push(frame) }
        }
    }

    fn check(&self, ledger: &Ledger) {
        let mut places = HashMap::new();
        for frame in 0..TOTAL {
            let (held, sent) = (self.held.contains(&frame), self.sent.contains(&frame));
            let place = match (self.lent.contains(&frame), sent, held) {
                (true, ..) => "fill",
                (_, true, _) => "tx",
                (_, _, true) => "held",
                _ => "free",
            };
            *places.entry(place).or_insert(0) += 1;
            assert_eq!(ledger.is_readable(frame), held || sent);
            assert_eq!(ledger.is_writable(frame), held && !sent);
            assert_eq!(ledger.is_transmitting(frame), sent);
        }
        let count = |place| places.get(place).copied().unwrap_or(0);
        let gauge = ledger.gauge();
        assert_eq!(gauge.total, TOTAL);
        assert_eq!(gauge.free + gauge.fill + gauge.held + gauge.tx, gauge.total);
        assert_eq!(
            (gauge.free, gauge.fill, gauge.held, gauge.tx),
            (count("free"), count("fill"), count("held"), count("tx"))
        );
    }
}

proptest! {
    #[test]
    fn ledger_random_steps_sum_to_total_and_hand_out_once(
        steps in proptest::collection::vec(step(), 0..400)
    ) {
        let (mut ledger, mut model) = (Ledger::new(TOTAL), Model::default());
        for step in &steps {
            model.apply(&mut ledger, step);
            model.check(&ledger);
        }
    }
}

#[test]
fn ledger_frame_sent_twice_is_free_after_both_completions() {
    let mut ledger = Ledger::new(1);
    let frame = ledger.take().expect("free");
    ledger.retain(frame);
    ledger.begin_transmit(frame);
    ledger.begin_transmit(frame);
    assert_eq!((ledger.gauge().tx, ledger.take()), (1, None));
    ledger.end_transmit(frame);
    assert_eq!((ledger.gauge().tx, ledger.take()), (1, None));
    ledger.end_transmit(frame);
    assert_eq!((ledger.gauge().tx, ledger.gauge().free), (0, 1));
}

#[test]
#[should_panic(expected = "was released but is not held")]
fn ledger_release_of_a_reference_owned_by_a_ring_panics() {
    let mut ledger = Ledger::new(1);
    let frame = ledger.take().expect("free");
    ledger.begin_transmit(frame);
    ledger.release(frame);
}

#[test]
#[should_panic(expected = "was received but never lent")]
fn ledger_receive_of_a_frame_not_lent_panics() {
    Ledger::new(2).receive(1);
}

#[test]
#[should_panic(expected = "was completed but never sent")]
fn ledger_completion_of_a_frame_not_sent_panics() {
    let mut ledger = Ledger::new(1);
    let frame = ledger.take().expect("free");
    ledger.end_transmit(frame);
}
