use super::*;
use crate::base::tally::Tally;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

#[test]
fn tally_lacks_what_neither_came_nor_is_on_its_way() {
    let mut tally = Tally::default();
    assert_eq!(tally.lacks(3), 3);
    tally.add(5);
    assert_eq!(tally.lacks(3), 0);
    (0..3).for_each(|_| tally.lose());
    assert_eq!((tally.outstanding(), tally.lacks(3)), (2, 1));
    (0..9).for_each(|_| tally.lose());
    assert_eq!(tally.lacks(3), 3, "more losses than packets were forged");
    tally.add(u64::MAX);
    assert_eq!(tally.sent, u16::MAX);
}

/// By the binomial distribution, 22 packets deliver 16 at 10 % loss in all but 0.44 % of cases, 21
/// in all but 1.4 %.
#[test]
fn share_leaves_a_few_units_in_a_thousand() {
    let loss = HopLoss { hop: 0, loss: 0.1, burst_mean: 1.0 };
    let packets = 16.0 + ahead(loss, 16);
    assert!((21.5..22.5).contains(&packets), "{packets}");
    assert!(ahead(HopLoss { loss: 0.0, ..loss }, 16).abs() < 1e-9);
    assert!(ahead(HopLoss { burst_mean: 8.0, ..loss }, 16) > 15.0);
}

/// At 2 % loss, more than four of 20 packets are lost with probability 3.7e-5, more than three of
/// 19 with 4.1e-4 (binomial distribution).
#[test]
fn sure_share_leaves_one_unit_in_ten_thousand() {
    let loss = HopLoss { hop: 0, loss: 0.02, burst_mean: 1.0 };
    assert_eq!(sure(loss, 16), 4);
    assert_eq!(sure(HopLoss { loss: 0.0, ..loss }, 16), 0);
    assert!(sure(HopLoss { loss: 1.0, ..loss }, 16) <= 64, "bounded");
    // Each packet of a block starts a loss run by chance, and a run continues with probability 7/8.
    let bursts = HopLoss { burst_mean: 8.0, ..loss };
    let share = usize::from(sure(bursts, 256));
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut chance = |share: f64| f64::from(random.next_u32()) < share * 4_294_967_296.0;
    let (mut short, mut is_bad, units) = (0, false, 200_000);
    for _ in 0..units {
        let lost = (0..256 + share)
            .filter(|_| {
                is_bad = chance(if is_bad { 0.875 } else { 0.02 / 0.98 / 8.0 });
                is_bad
            })
            .count();
        short += usize::from(lost > share);
    }
    println!("{share} packets beyond 256: {short} of {units} arrive incomplete");
    assert!((1..=40).contains(&short), "{short} of {units}");
}
