//! Tests of pipelines, as one program: shared code is compiled once.

mod common;
mod timed;

mod allocation;
mod apart;
mod attacks;
mod auto;
#[cfg(feature = "bats")]
mod bats;
#[cfg(feature = "bats")]
mod bats_sink;
mod budget;
mod bursts;
mod cellular;
mod changes;
mod classes;
#[cfg(feature = "bats")]
mod contradictions;
#[cfg(feature = "bats")]
mod effort;
mod entropy;
mod frames;
mod hop_repair;
mod hostile;
mod jitter;
mod joined;
mod lifecycle;
mod line;
mod mtu_flaps;
mod offload;
mod open_loop;
mod opening;
mod paced;
mod path_liars;
mod path_mtu;
mod paths;
mod replays;
mod report_seals;
mod sealed;
mod sink_restart;
mod slow_links;
mod stages;
mod stream;
mod stream_attacks;
mod stream_beside;
mod stream_hops;
mod stream_liars;
mod stream_state;
mod stream_tags;
mod stream_theory;
mod tags;
mod tree;
