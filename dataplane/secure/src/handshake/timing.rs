//! Times of the handshake, in nanoseconds. They are those of WireGuard, except for retries, which
//! begin sooner: a path without keys carries nothing.

const SECOND: u64 = 1_000_000_000;

/// Age at which the side that began an epoch begins the next one.
pub const REKEY_NANOS: u64 = 120 * SECOND;

/// Age at which the other side begins one, if the first one has not.
pub const REKEY_RESPONDER_NANOS: u64 = 150 * SECOND;

/// Silence of a neighbour, although a few packets were sent to it, after which new keys are agreed
/// on: it may have lost its keys together with this node's address. Neighbours send announcements
/// every ten seconds, so two such packets must be lost. After many packets the limit is much
/// shorter, see `silence`.
pub const SILENCE_NANOS: u64 = 25 * SECOND;

/// Age at which an epoch is refused, in both directions.
pub const EPOCH_NANOS_MAX: u64 = 180 * SECOND;

/// Wait for a response, with up to a quarter of random jitter, so that two sides do not collide
/// forever. Short, since messages are lost: over four hops of 10 % more than half of all handshakes
/// fail. A response to an earlier initiation comes too late, as the peer has answered a newer one
/// since; it shows the round trip of the path, and no later wait is shorter. Without a response,
/// every third wait is longer, first twice and then four times as long, up to [`RETRY_NANOS_MAX`];
/// then all are.
pub const RETRY_NANOS: u64 = SECOND / 10;

/// Waits per longer wait.
pub const RETRY_ROUND: u32 = 3;

/// Earlier initiations whose late responses are recognised.
pub const INITIATIONS_KNOWN: usize = 8;

/// Longest wait for a response. Also the longest round trip over which a handshake succeeds.
pub const RETRY_NANOS_MAX: u64 = 2 * SECOND;

/// At the start the side with the greater public key waits for the other one this long. Both may
/// begin: that costs one more handshake, and a restarted side whose wait is in vain soon gets its
/// turn.
pub const START_NANOS: u64 = SECOND / 100;

/// Shortest time between two initiations of a peer that are processed.
pub const INITIATION_NANOS_MIN: u64 = 20_000_000;

/// How much older than the newest initiation of a peer another one must be to show that its clock
/// went back: copies that took another path are younger, and a clock that is less behind has caught
/// up by then.
pub const STALE_NANOS: u64 = 4 * SECOND;

/// Shortest time between two initiations of this side triggered by stale ones of the peer: recorded
/// ones may be among them, and each handshake costs some 0.5 ms.
pub const STALE_PAUSE_NANOS: u64 = SECOND;

/// Lifetime of a cookie, and of its secret.
pub const COOKIE_NANOS: u64 = 120 * SECOND;

/// Handshake messages of a session per second above which it requires cookies: each costs four
/// multiplications on the curve, some 0.2 ms. A peer sends fewer than ten. Only the peer, or a
/// recording of its messages, uses them up.
pub const HANDSHAKES_PER_SECOND: u64 = 20;
