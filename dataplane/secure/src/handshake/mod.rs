//! The handshake of two neighbours, or of source and sink: Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s
//! with snow, in the message flow of WireGuard, including its protection of a responder under load.
//!
//! ```text
//!  timers -> Session -- initiation --> mac1 -> Session of the peer    state only behind mac1
//!            Session <-- response ---- mac1 <- Session
//!            Session <-- cookie ------ Gate                             under load: no state
//! ```
//!
//! A [`Gate`] is per node, a [`Session`] per peer and path. Both sides may begin; if they agree on
//! two epochs, both know both, and [`Ring`](crate::Ring) keeps both.

mod cookie;
mod invitation;
mod marks;
mod message;
pub(crate) mod noise;
mod session;

pub mod timing;

pub use cookie::{Admission, Arrived, Gate};
pub use invitation::{Invitation, JOIN_PAYLOAD_BYTES_MAX, JoinChannel, JoinRequest, Joining};
pub use message::{
    HANDSHAKE_BYTES_MAX, HANDSHAKE_TYPE, MARKS_BYTES, is_cookie, is_response, path_of,
};
pub use session::{Established, Identity, Scope, Session, Step};

pub(crate) use cookie::{Mac1, mac};
pub(crate) use message::{FIRST_BYTE, GRANT, GROUP, MAC, OPENING};
