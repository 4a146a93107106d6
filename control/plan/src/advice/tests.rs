//! Advice for links as measured by `plan`.

use super::*;
use crate::measured::{RoundTrip, Sums};

/// A link of `rate_mbit` Mbit/s with this loss rate, and a round trip of `trip_ms` milliseconds.
fn link(rate_mbit: f64, loss: f64, trip_ms: f64) -> Measured {
    let way =
        crate::measured::OneWayMeasurement { rate_mbit, loss, mtu: 1500, ..Sums::default().way() };
    Measured {
        from: "192.0.2.1".into(),
        interface: None,
        to: "192.0.2.2".into(),
        there: way.clone(),
        back: way,
        round_trip: RoundTrip { min_ms: trip_ms, median_ms: trip_ms, p99_ms: trip_ms, answers: 9 },
        notes: Vec::new(),
    }
}

fn way(receiver: &str, links: &[usize]) -> Way {
    Way { receiver: receiver.into(), links: links.to_vec() }
}

fn advice(links: &[Measured], ways: &[(&str, &[usize])]) -> Advice {
    let ways: Vec<Way> = ways.iter().map(|(receiver, links)| way(receiver, links)).collect();
    let advice = Advice::new(links, &ways).expect("ways that can be");
    println!("{advice:#?}");
    advice
}

/// Within 3 %.
fn is_near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 0.03
}

#[test]
fn two_uplinks_that_add_up_are_summed() {
    let links = [link(100.0, 0.1, 40.0), link(50.0, 0.02, 120.0)];
    let advice = advice(&links, &[("far", &[1]), ("far", &[0])]);
    let (sum, [one, other]) = (advice.best(), [0, 1].map(|at| advice.choices[at].clone()));
    assert_eq!((sum.shape, advice.why), (NetworkKind::Sum, Why::Adds));
    assert_eq!(
        (one.shape, &one.ways[..]),
        (NetworkKind::Direct, &[1][..]),
        "the better one is first"
    );
    assert!(is_near(sum.mbit, one.mbit + other.mbit), "{advice:?}");
    assert!(is_near(sum.left_mbit, other.mbit), "the faster one may be cut");
    assert!(sum.one_way_ms == 60.0 && sum.back_mbit == Some(sum.mbit));
    let every = advice.find(NetworkKind::Every).expect("one");
    assert!(is_near(every.mbit, other.mbit) && every.one_way_ms == 20.0);
    assert!(every.packets > 2.0 && sum.packets < 1.2, "{every:?}");
    assert_eq!(advice.find(NetworkKind::Backup).map(|it| it.left_mbit), Some(other.mbit));
}

#[test]
fn way_that_adds_little_is_kept_in_reserve() {
    let links = [link(100.0, 0.01, 10.0), link(8.0, 0.01, 50.0)];
    let advice = advice(&links, &[("far", &[0]), ("far", &[1])]);
    assert_eq!((advice.best().shape, advice.why), (NetworkKind::Backup, Why::Reserve));
    assert!(advice.best().mbit > 80.0 && advice.best().left_mbit > 5.0);
}

/// Two ways over relays that share the access link, which is the bottleneck.
#[test]
fn ways_behind_one_slow_link_are_no_sum() {
    let links = [link(20.0, 0.01, 10.0), link(100.0, 0.1, 20.0), link(100.0, 0.05, 30.0)];
    let advice = advice(&links, &[("far", &[0, 1]), ("far", &[0, 2])]);
    assert_eq!((advice.best().shape, advice.why), (NetworkKind::Line, Why::Shared));
    assert!(advice.find(NetworkKind::Sum).is_some_and(|sum| sum.left_mbit == 0.0));
}

#[test]
fn one_way_is_a_line_or_nothing_at_all() {
    let lossy = [link(100.0, 0.2, 40.0), link(100.0, 0.2, 40.0)];
    let advice_of = |links: &[Measured]| {
        let ways: Vec<usize> = (0..links.len()).collect();
        let advice = advice(links, &[("far", &ways)]);
        (advice.best().shape, advice.why)
    };
    assert_eq!(advice_of(&lossy), (NetworkKind::Line, Why::OneWay));
    assert_eq!(advice_of(&lossy[..1]), (NetworkKind::Direct, Why::OneWay));
    assert_eq!(advice_of(&[link(100.0, 0.0, 5.0)]), (NetworkKind::Direct, Why::NotWorthIt));
}

#[test]
fn receivers_behind_a_shared_link_are_a_tree() {
    let links = [link(50.0, 0.1, 20.0), link(50.0, 0.01, 20.0), link(50.0, 0.2, 20.0)];
    let ways: [(&str, &[usize]); 2] = [("a", &[0, 1]), ("b", &[0, 2])];
    let advice = advice(&links, &ways);
    assert_eq!((advice.best().shape, advice.why), (NetworkKind::Tree, Why::Once));
    let apart = advice.find(NetworkKind::Apart).expect("the other choice");
    assert!(is_near(apart.mbit, advice.best().mbit / 2.0 * (0.9 / 0.8)), "{advice:?}");
    assert!(is_near(apart.packets, 2.0 * advice.best().packets));
    assert!(advice.best().back_mbit.is_none() && advice.best().left_mbit == 0.0);
}

#[test]
fn receivers_with_links_of_their_own_get_flows_of_their_own() {
    let links = [link(50.0, 0.1, 20.0), link(20.0, 0.01, 20.0), link(9.0, 0.0, 9.0)];
    let ways: [(&str, &[usize]); 3] = [("a", &[0]), ("b", &[1]), ("b", &[2])];
    let advice = advice(&links, &ways);
    assert_eq!((advice.best().shape, advice.why), (NetworkKind::Apart, Why::NothingShared));
    assert_eq!(advice.best().ways, [0, 1], "each by the better of its ways");
}

#[test]
fn ways_that_cannot_be_are_refused() {
    let links = vec![link(10.0, 0.0, 1.0); 12];
    let error = |ways: &[Way]| Advice::new(&links, ways).expect_err("refused");
    assert_eq!(error(&[]), WaysError::Count(0));
    assert_eq!(error(&vec![way("a", &[0]); 65]), WaysError::Count(65));
    assert_eq!(error(&[way("a", &[])]), WaysError::Links(1));
    assert_eq!(error(&[way("a", &[0]), way("b", &[12])]), WaysError::Links(2));
    assert_eq!(error(&[way("a", &[0, 1, 0])]), WaysError::Circle(1));
    assert_eq!(error(&[way("a", &[3]), way("a", &[3])]), WaysError::Twice(1, 2));
    let nine: Vec<Way> = (0..9).map(|link| way("a", &[link])).collect();
    assert_eq!(error(&nine), WaysError::Paths(9, "a".into()));
}

/// Any measurement that passes the check.
#[test]
fn no_figures_lead_to_advice_that_is_no_number() {
    for (rate, loss, trip) in [(1e-3, 1.0, 0.0), (1e6, 0.5, 1e5), (100.0, 0.0, 0.0)] {
        let links = [link(rate, loss, trip), link(1e6, 1.0, 1e5), link(10.0, 0.1, 10.0)];
        for receivers in [["a", "a", "a"], ["a", "b", "b"]] {
            let ways =
                [way(receivers[0], &[0, 1]), way(receivers[1], &[2]), way(receivers[2], &[0])];
            for choice in Advice::new(&links, &ways).expect("ways that can be").choices {
                let figures = [choice.mbit, choice.one_way_ms, choice.packets, choice.left_mbit];
                assert!(figures.iter().all(|it| it.is_finite() && *it >= 0.0), "{choice:?}");
            }
        }
    }
}
