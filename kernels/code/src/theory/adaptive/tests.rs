//! Tables computed independently of this code, the chain run forwards, and exhaustive search.

use super::*;
use FieldOrder::{Sixteen, TwoFiftySix};
use Recoding::{Random, Systematic};

/// Hops that the rows below list.
const LISTED_HOPS: [usize; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 30, 50];

fn line(size: usize, loss: f64, budget: f64) -> Vec<AdaptiveHop> {
    let hop = LossModel::independent(loss);
    let outgoing = Outgoing { size, field: TwoFiftySix, hop, recoding: Random, budget };
    adaptive_line(&outgoing, &[hop; 50])
}

fn assert_row(size: usize, loss: f64, budget: f64, row: [u32; 14]) {
    let line = line(size, loss, budget);
    for (hop, thousandths) in LISTED_HOPS.into_iter().zip(row) {
        let (computed, listed) = (line[hop - 1].expected_rank(), f64::from(thousandths) / 1000.0);
        assert!(
            (computed - listed).abs() <= 0.001,
            "size {size}, loss {loss}, budget {budget}, hop {hop}: {computed} != {listed}"
        );
    }
}

#[test]
fn expected_rank_at_equal_airtime_matches_tables() {
    let row = |size: usize, loss, row| assert_row(size, loss, size as f64, row);
    row(4, 0.1, [899, 840, 803, 778, 759, 743, 729, 716, 705, 695, 656, 630, 596, 555]);
    row(8, 0.1, [900, 859, 834, 815, 800, 788, 778, 769, 761, 755, 728, 709, 684, 653]);
    row(16, 0.1, [900, 870, 853, 839, 829, 821, 814, 808, 803, 798, 780, 767, 750, 729]);
    row(4, 0.2, [800, 726, 680, 647, 622, 602, 584, 570, 557, 547, 507, 480, 444, 406]);
    row(8, 0.2, [800, 745, 712, 688, 670, 655, 643, 632, 623, 615, 583, 562, 533, 499]);
    row(16, 0.2, [800, 761, 737, 721, 708, 697, 688, 681, 674, 668, 646, 631, 611, 586]);
}

#[test]
fn expected_rank_with_airtime_for_the_loss_matches_tables() {
    let row = |loss, row| assert_row(16, loss, 16.0 / (1.0 - loss), row);
    row(0.1, [968, 949, 935, 925, 917, 909, 903, 897, 892, 888, 870, 858, 841, 819]);
    row(0.2, [956, 930, 911, 897, 885, 875, 867, 859, 853, 847, 824, 809, 786, 760]);
}

#[test]
fn packets_of_the_first_relay_match_the_listed_ones() {
    for (loss, listed) in [
        (0.1, [9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.31, 17.0, 18.0]),
        (0.2, [10.0, 11.0, 12.0, 14.0, 15.0, 16.0, 17.67, 19.0, 20.0]),
    ] {
        let table = &line(16, loss, 16.0)[1].table;
        for (rank, packets) in (8..=16).zip(listed) {
            let computed = table.mean_packets(rank);
            assert!((computed - packets).abs() < 0.006, "loss {loss}, rank {rank}: {computed}");
        }
    }
}

/// Expected rank behind `hop`, by the chain run forwards.
fn forward(
    field: FieldOrder,
    hop: LossModel,
    rank: usize,
    packets: usize,
    recoding: Recoding,
) -> f64 {
    let mut chain = Chain::new(field);
    chain.start(Channel::new(hop), rank, packets, recoding);
    rank as f64 - chain.missing().map(|(missing, p)| missing as f64 * p).sum::<f64>()
}

#[test]
fn gains_are_those_of_the_chain_run_forwards() {
    let hops = [
        LossModel::independent(0.0),
        LossModel::independent(0.2),
        LossModel { loss: 0.1, burst_mean: 4.0 },
        LossModel { loss: 0.6, burst_mean: 30.0 },
    ];
    let mut adaptive = Adaptive::new(24, 80);
    for field in FieldOrder::ALL {
        for recoding in [Random, Systematic] {
            for hop in hops {
                let outgoing = Outgoing::equal_airtime(17, field, hop, recoding);
                adaptive.table(&outgoing, &[1.0; 18]);
                for rank in [1, 2, 9, 17] {
                    let row = rank * adaptive.packets_max;
                    let length = adaptive.lengths[rank];
                    let mut sum = 0.0;
                    for packets in 1..=length {
                        let gain = |packet: usize| adaptive.gains[row + packet - 1];
                        assert!(packets == 1 || gain(packets) <= gain(packets - 1));
                        sum += gain(packets);
                        let expected = forward(field, hop, rank, packets, recoding);
                        // Within a run of equal gains the sum lies on the envelope above.
                        let pooled = packets < length && gain(packets + 1) == gain(packets);
                        assert!(
                            sum > expected - 1e-6 && (pooled || sum < expected + 1e-6),
                            "GF({field}), {recoding:?}, {hop:?}, {rank}, {packets}: {sum} {expected}"
                        );
                        let concave = recoding == Random || hop.burst_mean == 1.0;
                        assert!(!concave || sum < expected + 1e-6, "{field} {hop:?} {packets}");
                    }
                    let all = forward(field, hop, rank, length + 1, recoding);
                    let at_limit = length == adaptive.packets_max;
                    assert!(at_limit || all - sum < 1.1e-5, "{hop:?}: stopped at {length}");
                }
            }
        }
    }
}

#[test]
fn budget_is_spent_and_no_exchange_of_packets_gains() {
    let ranks: Vec<f64> = (0..=12).map(|rank| f64::from((rank * 7) % 5)).collect();
    let total: f64 = ranks.iter().sum();
    for field in FieldOrder::ALL {
        for (recoding, burst_mean) in [(Random, 2.0), (Systematic, 1.0)] {
            let hop = LossModel { loss: 0.15, burst_mean };
            for budget in [3.0, 9.5, 12.0, 15.0] {
                let outgoing = Outgoing { size: 12, field, hop, recoding, budget };
                let table = Adaptive::new(12, 60).table(&outgoing, &ranks);
                let mean = (0..=12).map(|rank| table.mean_packets(rank) * ranks[rank]).sum::<f64>();
                assert!((mean / total - budget).abs() < 1e-6, "{budget}: {}", mean / total);
                let gain = |rank, packets: usize| {
                    let at = |packets| forward(field, hop, rank, packets, recoding);
                    if packets == 0 { 1.0 } else { at(packets) - at(packets - 1) }
                };
                let seen = || (1..=12).filter(|&rank| ranks[rank] > 0.0);
                // The worst packet that is sent with certainty gains as much as the best that is
                // not.
                let sent = seen().map(|rank| gain(rank, table.packets(rank, u32::MAX)));
                let unsent = seen().map(|rank| gain(rank, table.packets(rank, u32::MAX) + 1));
                let worst = sent.fold(f64::INFINITY, f64::min);
                let best = unsent.fold(0.0, f64::max);
                assert!(
                    worst > best - 1e-6,
                    "GF({field}), {recoding:?}, {budget}: {worst}, {best}"
                );
            }
        }
    }
}

#[test]
fn adapting_never_loses_against_sending_a_batch_each() {
    for field in FieldOrder::ALL {
        for recoding in [Random, Systematic] {
            for (size, loss) in [(1, 0.1), (5, 0.3), (16, 0.1), (32, 0.05)] {
                let hop = LossModel::independent(loss);
                let outgoing = Outgoing::equal_airtime(size, field, hop, recoding);
                let adaptive = expected_rank_adaptive(&outgoing, &[hop; 12]);
                let fixed =
                    super::super::expected_rank(size, field, &[size; 12], &[loss; 12], recoding);
                for (adaptive, fixed) in adaptive.iter().zip(&fixed) {
                    assert!(adaptive - fixed > -1e-9, "{size}, {loss}: {adaptive} < {fixed}");
                }
                assert!(adaptive[11] > fixed[11] + 0.005, "{size}, {loss}: no gain");
            }
        }
    }
}

#[test]
fn tables_of_nonsense_are_bounded_and_start_complete_batches() {
    let mut adaptive = Adaptive::new(16, 64);
    for loss in [f64::NAN, -1.0, 0.0, 0.5, 1.0, 7.0, f64::INFINITY] {
        for burst_mean in [f64::NAN, -1.0, 0.0, 1.0, 1e9, f64::INFINITY] {
            for budget in [f64::NAN, -2.0, 0.0, 1e-9, 16.0, 1e30, f64::INFINITY] {
                for ranks in [[0.0; 17], [f64::NAN; 17], [-1.0; 17], [f64::INFINITY; 17], [3.0; 17]]
                {
                    let hop = LossModel { loss, burst_mean };
                    let outgoing =
                        Outgoing { size: 16, field: Sixteen, hop, recoding: Systematic, budget };
                    let table = adaptive.table(&outgoing, &ranks);
                    let packets: Vec<_> = (0..=17).map(|rank| table.packets(rank, 0)).collect();
                    assert!(packets.iter().all(|&packets| packets <= 65), "{packets:?}");
                    assert_eq!((packets[0], packets[17]), (0, packets[16]));
                    if ranks[1] != 3.0 && !(budget > 0.0 && budget < 16.0) {
                        assert!(packets[16] >= 16, "{hop:?}, {budget}: {packets:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn fractions_are_drawn_with_their_probability() {
    let mut table = RecodingTable::fixed(4, 6);
    assert_eq!((table.packets(0, 0), table.packets(1, 0), table.packets(9, 0)), (0, 6, 6));
    table.set(3, 2.25);
    let sent = [0, 0x3fff_ffff, 0x4000_0000, u32::MAX].map(|uniform| table.packets(3, uniform));
    assert_eq!(sent, [3, 3, 2, 2]);
    assert_eq!(table.mean_packets(3), 2.25);
}

#[test]
fn tables_of_every_size_are_built_with_times_printed() {
    // With --release --nocapture: the figures of docs/internals/code-library.md.
    for size in [8, 16, 32, 64, 128] {
        let hop = LossModel { loss: 0.1, burst_mean: 3.0 };
        let mut adaptive = Adaptive::new(size, 4 * size);
        let outgoing = Outgoing::equal_airtime(size, Sixteen, hop, Systematic);
        let ranks = vec![1.0; size + 1];
        let once = |adaptive: &mut Adaptive, outgoing: &Outgoing| {
            let start = std::time::Instant::now();
            let table = adaptive.table(outgoing, &ranks);
            assert!(table.packets(size, 0) >= size);
            start.elapsed()
        };
        let systematic = (0..5).map(|_| once(&mut adaptive, &outgoing)).min();
        let outgoing = Outgoing { recoding: Random, ..outgoing };
        let random = (0..5).map(|_| once(&mut adaptive, &outgoing)).min();
        println!("batch size {size}: systematic {systematic:?}, random {random:?}");
    }
}
