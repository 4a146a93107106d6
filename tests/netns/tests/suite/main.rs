//! Tests in network namespaces: one program, so that they take turns with the machine's cores.

mod common;

mod accelerator;
mod addresses;
mod attack;
mod auth;
mod bed;
mod bonding;
mod doctor;
mod events;
mod faults;
mod group;
mod hostile;
mod limits;
mod line;
mod mesh;
mod metrics;
mod mtu;
mod names;
mod network;
mod numbered;
mod one_way;
mod paths;
mod ping;
mod plan;
mod processes;
mod reload;
mod stream;
mod takeover;
mod talk;
mod timed;
mod topology;
mod tree;
mod udp;
mod workers;
