//! Keys, handshakes and tags: proof that a neighbour, or the other end, sent a packet.
//!
//! Bytes and the time in, bytes and verdicts out: no I/O, no clock, no randomness of its own
//! (callers pass [`Entropy`]), no allocation per packet. The one exception is [`key_file`], for the
//! start of a program.
//!
//! ```text
//!  keys --> Session, per neighbour: Noise IK with a pre-shared key   | or OneWaySender/Receiver
//!             `--> Secrets, one per direction
//!                    |--> HopSender, HopReceiver   a tag on every packet of a hop, replay window
//!                    |--> ColumnSeeds --> TagKey   tags of symbols, which recoding carries along
//!                    |                  `--> UnitMasks, per worker
//!                    `--> Sealer, Opener           end to end: AEAD per source packet
//!  Grant: some ColumnSeeds for a relay --> RelayColumns --> TagKey of these columns
//!  Ring: the epochs of keys that are valid while packets are in flight
//!  Association: a Session and the Ring of its keys, HopKeys or EdgeKeys for all workers;
//!  OneWayKeys: the same of openings; GroupSender, GroupReceiver: of a flow to several sinks
//! ```

#![forbid(unsafe_code)]

mod secret;

mod error;

mod keys;

pub mod key_file;

mod derive;

mod handshake;

mod one_way;

mod grant;

mod tries;

mod ring;

mod replay;

mod columns;

mod hop;

mod homomorphic;

mod units;

mod envelope;

mod profile;

mod silence;

mod association;

mod epoch_keys;

mod one_way_keys;

mod group;

mod relay_columns;

pub use association::{Association, EpochKeys, Turn};
pub use derive::{LABEL_PREFIX, Secrets};
pub use envelope::{ENVELOPE_BYTES, HEADER_BYTES, Opener, REPORT_BYTES_MAX, Sealer, Suite};
pub use epoch_keys::{
    EdgeKeys, HopKeys, LANES, Received, open_edge, open_hop, open_report, verify_symbol,
};
pub use error::{KeyError, Refused};
pub use grant::{
    GRANT_BYTES_MAX, GRANT_EPOCHS_MAX, Grant, GrantReader, GrantedSeeds, granted_seeds, is_grant,
    write_grant,
};
pub use group::{
    GROUP_BYTES, GROUP_SINKS_MAX, GroupReceiver, GroupSender, group_way, is_group, write_group,
};
pub use handshake::{
    Admission, Arrived, Established, Gate, HANDSHAKE_BYTES_MAX, HANDSHAKE_TYPE, Identity,
    Invitation, JOIN_PAYLOAD_BYTES_MAX, JoinChannel, JoinRequest, Joining, MARKS_BYTES, Scope,
    Session, Step, is_cookie, is_response, path_of, timing,
};
pub use homomorphic::{ColumnSeed, Masks, SUBSET_MIN, Strength, TagKey};
pub use hop::{Checked, HopDigest, HopReceiver, HopSender, TRAILER_BYTES};
pub use keys::{Entropy, PresharedKey, PrivateKey, PublicKey};
pub use one_way::{
    KeyDirection, OPENING_BYTES, OneWayReceiver, OneWaySender, Opened, Remembered, is_opening,
};
pub use one_way_keys::{Keep, ONE_WAY_EPOCH_NANOS, OneWayKeys};
pub use profile::Profile;
pub use recoded_wire::unit::{CONTEXT_BYTES, Formed, Space, TaggedUnit, UnitKind};
pub use relay_columns::{
    GRANT_LIFE_NANOS, GrantSchedule, GrantTurn, RelayColumns, verify_at_relay,
};
pub use replay::ReplayWindow;
pub use ring::{Epoch, Ring};
pub use secret::Secret;
pub use tries::Tries;
pub use units::{UNIT_SYMBOLS_MAX, UnitMasks};

/// Packets after which keys are changed: 2^28 packets of 1500 bytes under one AES-GCM key keep an
/// attacker's advantage below 2^-60 (2^35 blocks; NIST SP 800-38D and RFC 9001 B.1).
pub const REKEY_PACKETS: u64 = 1 << 28;

/// Packets after which a key is no longer used.
pub const PACKETS_MAX: u64 = 1 << 30;
