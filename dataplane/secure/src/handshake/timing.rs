//! Times of the handshake, in nanoseconds. Those of WireGuard, but for retries, which begin sooner:
//! a path without keys carries nothing.

const SECOND: u64 = 1_000_000_000;

/// Age at which the side that began an epoch begins the next one.
pub const REKEY_NANOS: u64 = 120 * SECOND;

/// Age at which the other side does, where the first one has not.
pub const REKEY_RESPONDER_NANOS: u64 = 150 * SECOND;

/// Silence of a neighbour, although a few packets were sent to it, after which other keys are
/// agreed on: it may have lost those in use with where this node is. Neighbours say something of
/// themselves every ten seconds, so two such packets must be lost. After many packets it is much
/// shorter, see
/// `silence`.
pub const SILENCE_NANOS: u64 = 25 * SECOND;

/// Age at which an epoch is refused, in both directions.
pub const EPOCH_NANOS_MAX: u64 = 180 * SECOND;

/// Wait for a response, up to a quarter longer by chance, so that two sides do not collide for
/// ever. Short, since messages are lost: over four hops of 10 % more than half of all handshakes
/// fail. A response to an earlier initiation comes too late, as the peer has answered a newer one
/// since; it says how long the path takes, and none waits for less from then on. Where none comes,
/// each third wait is longer: twice as long, then four times, up to [`RETRY_NANOS_MAX`]; then all.
pub const RETRY_NANOS: u64 = SECOND / 10;

/// Every so many waits one is longer.
pub const RETRY_ROUND: u32 = 3;

/// Earlier initiations of which a late response is known.
pub const INITIATIONS_KNOWN: usize = 8;

/// Longest wait for a response. Also the longest round trip over which a handshake succeeds.
pub const RETRY_NANOS_MAX: u64 = 2 * SECOND;

/// At the start the side with the greater public key waits for the other one this long. Both may
/// begin: that costs a handshake more, and a restarted side, which waits in vain, is heard soon.
pub const START_NANOS: u64 = SECOND / 100;

/// Shortest time between two initiations of a peer that are looked at.
pub const INITIATION_NANOS_MIN: u64 = 20_000_000;

/// How much older than the newest initiation of a peer another one must be to show that its clock
/// went back: copies that took another path are younger, and a clock that is less behind has caught
/// up by then.
pub const STALE_NANOS: u64 = 4 * SECOND;

/// Shortest time between two initiations of this side that stale ones of the peer cause: recorded
/// ones may be among them, and each handshake costs some 0.5 ms.
pub const STALE_PAUSE_NANOS: u64 = SECOND;

/// How long a cookie is good for, and how often its secret changes.
pub const COOKIE_NANOS: u64 = 120 * SECOND;

/// Handshake messages a second from which on a node asks for cookies: each costs four
/// multiplications on the curve, some 0.2 ms.
pub const HANDSHAKES_PER_SECOND: u64 = 100;
