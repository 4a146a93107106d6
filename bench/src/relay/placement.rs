//! Which cores the load and the relay run on.

use crate::error::BenchError;

/// Cores of one number of workers.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Cores {
    /// Of the load, one per shard. Core `c` sends to receive queue `c` modulo their number.
    pub load: Vec<usize>,
    /// Of the relay, one per worker.
    pub relay: Vec<usize>,
}

impl Cores {
    /// Chooses cores for `workers` workers among the cores `allowed`, from the last one: the
    /// relay's, then the load's before them, as far as cores are left. A single worker has a core
    /// of its own.
    ///
    /// # Errors
    /// [`BenchError::Cores`] if there are too few, [`BenchError::Queues`] if the load's do not
    /// reach all queues.
    pub fn choose(allowed: &[usize], workers: usize) -> Result<Cores, BenchError> {
        let needed = workers.max(2);
        if allowed.len() < needed {
            return Err(BenchError::Cores { needed, found: allowed.len() });
        }
        let first = allowed.len().saturating_sub(2 * workers);
        let cores = Cores {
            load: allowed[first..first + workers].to_vec(),
            relay: allowed[allowed.len() - workers..].to_vec(),
        };
        let mut queues: Vec<usize> = cores.load.iter().map(|core| core % workers).collect();
        queues.sort_unstable();
        if queues.into_iter().eq(0..workers) {
            Ok(cores)
        } else {
            Err(BenchError::Queues { workers, cores: cores.load })
        }
    }

    /// Whether load and relay have a core in common.
    pub fn are_shared(&self) -> bool {
        self.load.iter().any(|core| self.relay.contains(core))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(allowed: &[usize], workers: usize) -> Option<(Vec<usize>, Vec<usize>)> {
        Cores::choose(allowed, workers).ok().map(|cores| (cores.load, cores.relay))
    }

    #[test]
    fn cores_are_shared_only_where_there_are_too_few() {
        assert_eq!(chosen(&[0, 1], 1), Some((vec![0], vec![1])));
        assert_eq!(chosen(&[0, 1], 2), Some((vec![0, 1], vec![0, 1])));
        assert_eq!(chosen(&[0, 1, 2], 2), Some((vec![0, 1], vec![1, 2])));
        assert_eq!(chosen(&[0, 1, 2, 3], 2), Some((vec![0, 1], vec![2, 3])));
        assert_eq!(chosen(&[0], 1), None);
        assert_eq!(chosen(&[0, 1], 3), None);
    }

    #[test]
    fn cores_of_the_load_that_miss_a_queue_are_refused() {
        assert_eq!(chosen(&[0, 2, 4, 6], 2), None);
    }
}
