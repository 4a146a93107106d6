//! `recodectl invite` and `recodectl join`: a new box becomes part of a network by one command on
//! the hub and one on the box. Daemons do not take part.
//!
//! ```text
//!  hub: invite  token ──> (a person copies it) ──> join: box
//!               listens at a TCP port             makes its private key
//!                  <── Noise: key of the box, proof of the secret ──
//!                  ──  offer: names, addresses, path ──>            checks it
//!                  <── accepted ──
//!               file, reload ── done ──>                            writes its file
//! ```
//!
//! The secret in the token serves once, and until the hub's clock says that it expired. Nothing
//! changes on either box before both have proven their keys in this very exchange.

pub mod invite;
pub mod join;

mod exchange;
mod hub_file;
mod listener;
mod token;
