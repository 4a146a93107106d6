//! Symbols of generations and blocks as long as the path carries. IP packets of any length are
//! packed into them, so the tunnel keeps its MTU.

use crate::env::egress::Egress;
use crate::env::io::Io;
use crate::shard::Shard;
use crate::stage::{RoleState, each};
use crate::unit::role::Lifecycle;
use recoded_wire::frames::Frames;

/// Shortest symbol, regardless of reports: below, more of a packet would be header than data.
const SYMBOL_BYTES_MIN: usize = 500;

/// Minimum gain that justifies longer symbols: each length is another epoch.
const WORTH_BYTES: usize = 24;

impl Shard {
    /// Changes a source to symbols as long as every link carries, if that has changed.
    pub(super) fn follow_size(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) {
        let mender = each!(&self.present.state, role => role.mender());
        let Some(mender) = mender.filter(|_| self.is_source()) else { return };
        let limit = mender.path_limit();
        let params = &self.present.params;
        let before = params.code.header_bytes(params.generation_size, params.field);
        let carried = |bytes: u16| usize::from(bytes).saturating_sub(before).max(SYMBOL_BYTES_MIN);
        let bytes = limit.map_or(usize::MAX, carried).min(self.symbol_bytes);
        let is_worth_it = bytes >= params.symbol_bytes + WORTH_BYTES || bytes == self.symbol_bytes;
        if bytes == params.symbol_bytes || bytes > params.symbol_bytes && !is_worth_it {
            return;
        }
        let mut shorter = params.clone();
        shorter.symbol_bytes = bytes;
        self.go_on(&shorter, io);
    }
}
