//! Packets that wait in the socket of an application that reads as fast as it can.

use super::Line;
use recoded_pipeline::params::Nanos;

impl Line {
    /// The most packets delivered since a time that wait in a socket, if the application reads
    /// `reads` of them each millisecond.
    pub fn most_waiting(&self, since: Nanos, reads: f64) -> f64 {
        let (mut waiting, mut most, mut at) = (0.0f64, 0.0f64, 0);
        for packet in self.delivered.iter().filter(|packet| packet.at > since) {
            waiting = (waiting - (packet.at - at) as f64 * reads * 1e-6).max(0.0) + 1.0;
            (most, at) = (most.max(waiting), packet.at);
        }
        most
    }
}
