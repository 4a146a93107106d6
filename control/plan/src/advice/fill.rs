//! Max-min fair rates of ways that share links: all grow alike until one of their links is full.

/// Max-min fair rates of ways, given the links that each takes: no link exceeds its room, and no
/// rate could grow without another one falling.
pub fn fill(rooms: &[f64], ways: &[&[usize]]) -> Vec<f64> {
    let mut left = rooms.to_vec();
    let mut got = vec![0.0; ways.len()];
    let mut grows = vec![true; ways.len()];
    while grows.contains(&true) {
        let takers = |link: usize| {
            let growing = ways.iter().zip(&grows).filter(|(_, grows)| **grows);
            growing.filter(|(way, _)| way.contains(&link)).count()
        };
        let shares = (0..left.len()).filter(|link| takers(*link) > 0);
        let shares = shares.map(|link| (left[link] / takers(link) as f64, link));
        let Some((step, full)) = shares.min_by(|one, other| one.0.total_cmp(&other.0)) else {
            break;
        };
        for (place, way) in ways.iter().enumerate().filter(|(place, _)| grows[*place]) {
            got[place] += step;
            for link in *way {
                left[*link] = (left[*link] - step).max(0.0);
            }
        }
        // At least these ways end here, so there are no more steps than ways.
        for (grows, way) in grows.iter_mut().zip(ways) {
            *grows &= !way.contains(&full);
        }
    }
    got
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ways_share_what_they_have_in_common() {
        for (rooms, ways, expected) in [
            (vec![100.0, 50.0], vec![&[0][..], &[1][..]], vec![100.0, 50.0]),
            (vec![30.0, 100.0, 50.0], vec![&[0, 1], &[0, 2]], vec![15.0, 15.0]),
            (vec![30.0, 5.0, 50.0], vec![&[0, 1], &[0, 2]], vec![5.0, 25.0]),
            (vec![9.0], vec![&[0], &[0], &[0]], vec![3.0, 3.0, 3.0]),
            (vec![], vec![], vec![]),
        ] {
            assert_eq!(fill(&rooms, &ways), expected, "{rooms:?} {ways:?}");
        }
    }

    proptest! {
        #[test]
        fn no_link_is_overfull_and_each_way_has_one_that_is_full(
            rooms in proptest::collection::vec(0.1f64..100.0, 5),
            ways in proptest::collection::vec(
                proptest::sample::subsequence(vec![0usize, 1, 2, 3, 4], 1..=5), 1..8),
        ) {
            let ways: Vec<&[usize]> = ways.iter().map(Vec::as_slice).collect();
            let got = fill(&rooms, &ways);
            let used = |link: usize| {
                let takers = ways.iter().zip(&got).filter(|(way, _)| way.contains(&link));
                takers.map(|(_, got)| got).sum::<f64>()
            };
            for (link, room) in rooms.iter().enumerate() {
                prop_assert!(used(link) <= room + 1e-9);
            }
            for way in &ways {
                prop_assert!(way.iter().any(|link| used(*link) >= rooms[*link] - 1e-9));
            }
        }
    }
}
