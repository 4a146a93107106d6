//! The two processes of a node: one has privileges and sees no packet, the other sees packets and
//! has no privileges.
//!
//! ```text
//!  supervisor: Privileged                                     dataplane process: Client
//!   programs and their maps <- Attach, SetSocket, SetFlow, .. -- steering, report
//!   tunnels (descriptors) ---- Tunnel ------------------------> workers read and write
//!   rtnetlink that changes  <- SetMtu, SetCarrier, Resolve ---- paths, neighbours
//!   what ways remember ------- Recall, Keep ------------------> thread of keys
//! ```
//!
//! The state of the privileged half outlives the dataplane process, which may be killed at any
//! time: programs stay attached and drop coded packets, since their sockets went with the process,
//! and tunnels keep their index, addresses and routes.
//!
//! The privileged half trusts no request: names, queues and interfaces that are not those of the
//! topology are refused.

mod addresses;
mod client;
mod kill_switch;
mod message;
mod queues;
mod routes;
mod server;

pub use addresses::Left;
pub use addresses::TunnelAddresses;
pub use client::Client;
pub(crate) use client::{AskError, Attached};
pub use kill_switch::KillSwitch;
pub use queues::TunnelQueues;
pub use routes::{Destinations, RoutePlan, TunnelRoutes};
pub use server::{Inherited, Privileged};
