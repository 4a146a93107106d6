//! Checks that the packets of a tunnel fit the unit that its source codes: a generation, a block,
//! or a symbol of a stream. A source drops packets that do not fit.
//!
//! ```text
//!  rlnc, bats: | length 2 | IP packet ... | over the symbols of a generation or block
//!  stream:     | IP packet | in one symbol
//!  sealed:     | 2 | envelope of 25 around the IP packet | instead of the IP packet
//!  tagged:     | tag 8 or 16 | payload | instead of each symbol
//! ```

use super::code::CodeSettings;
use super::daemon::TUNNEL_MTU_DEFAULT;
use super::document::Section;
use super::error::ConfigError;
use super::reader::Reader;
use super::symbol::{Paths, SYMBOL_BYTES_MIN};
use super::{Flow, Tunnel};
use recoded_api::keys::{FLOW, Values};
use recoded_pipeline::params::{FlowCode, FlowParams, Role, sealing_bytes};
use recoded_runtime::{Address, TUNNEL_MTU_MIN_V4, tunnel_mtu_min};

/// Bytes that the default MTU leaves free in a symbol: 2 for the length in front of a packet of a
/// generation or block, 1 spare. Both ends of a tunnel have this value; with different ones their
/// MTUs would differ.
const SPARE_BYTES: usize = 3;

/// Default MTU of a tunnel whose source has symbols of `symbol_bytes`: a full-size IP packet fits
/// one symbol, with its length. It is not below the minimum for the tunnel's addresses, since
/// packets of generations and blocks may span symbols.
pub fn default_tunnel_mtu(addresses: &[Address], symbol_bytes: usize) -> u16 {
    let fitted = u16::try_from(symbol_bytes.saturating_sub(SPARE_BYTES));
    fitted.unwrap_or(TUNNEL_MTU_DEFAULT).max(tunnel_mtu_min(addresses))
}

/// Sets the MTU of tunnels that do not configure it. A full-size packet also fits a stream, which
/// has the shortest symbols, so the code of the flow can change while the tunnel exists.
pub fn default_tunnel_mtus(tunnels: &mut [(Tunnel, bool)], flows: &[Flow], paths: Paths<'_>) {
    for (index, (tunnel, given)) in tunnels.iter_mut().enumerate() {
        if *given {
            continue;
        }
        let source = flows.iter().find(|flow| flow.feeds(index));
        tunnel.mtu = source.map_or(TUNNEL_MTU_DEFAULT, |Flow { params, .. }| {
            let stream = CodeSettings::STREAM.header_bytes();
            let stream = paths.room_behind(stream, &params.next_hops).default;
            let tag_bytes = params.tag_bytes();
            let stream = (stream + SPARE_BYTES).saturating_sub(tag_bytes);
            let symbol_bytes = params.payload_bytes().min(stream);
            let sealing_bytes = sealing_bytes(params.sealed);
            default_tunnel_mtu(&tunnel.addresses, symbol_bytes.saturating_sub(sealing_bytes))
        });
    }
}

/// Refuses sources that would drop full-size packets of their tunnel. `flows` are those of all
/// `sections`.
pub fn check(
    sections: &[Section],
    flows: &[Flow],
    tunnels: &[Tunnel],
    paths: Paths<'_>,
    errors: &mut Vec<ConfigError>,
) {
    for (index, (section, flow)) in sections.iter().zip(flows).enumerate() {
        let Role::Source { tunnel } = flow.params.role else { continue };
        let fit = Fit { flow, tunnel: &tunnels[usize::from(tunnel.0)], paths };
        if fit.holds(&flow.params) {
            continue;
        }
        let unit = Unit::of(&flow.params);
        let mut reader = Reader::new(section, index, errors);
        reader.refuse_part(unit.key, unit.key.into(), unit.value, "does not fit", &fit.rule());
    }
}

/// The unit that a source codes together, as configured.
struct Unit {
    /// The key that enlarges it; `code` for a stream, which has no such key.
    key: &'static str,
    /// Its value.
    value: String,
    /// Symbols that one packet may span.
    symbols: usize,
    /// The largest value of the key; zero if no value makes room.
    symbols_max: usize,
    /// Overhead of each packet, in bytes.
    overhead: usize,
    /// Overhead of each symbol, in bytes.
    tag_bytes: usize,
}

impl Unit {
    fn of(params: &FlowParams) -> Unit {
        let of = |key, symbols: usize| {
            let value = symbols.to_string();
            let overhead = params.framing_bytes();
            let tag_bytes = params.tag_bytes();
            Unit { key, value, symbols, symbols_max: most(key), overhead, tag_bytes }
        };
        match params.code {
            FlowCode::Rlnc => of("generation_size", params.generation_size),
            #[cfg(feature = "bats")]
            FlowCode::Bats(bats) => of("block_symbols", bats.source_symbols),
            FlowCode::Stream(_) => Unit { value: "\"stream\"".to_owned(), ..of("code", 1) },
        }
    }

    /// Longest packet that fits.
    fn room(&self, symbol_bytes: usize) -> usize {
        let payload_bytes = symbol_bytes.saturating_sub(self.tag_bytes);
        (self.symbols * payload_bytes).saturating_sub(self.overhead)
    }
}

/// A source and its tunnel.
struct Fit<'a> {
    flow: &'a Flow,
    tunnel: &'a Tunnel,
    paths: Paths<'a>,
}

impl Fit<'_> {
    fn mtu(&self) -> usize {
        usize::from(self.tunnel.mtu)
    }

    fn holds(&self, params: &FlowParams) -> bool {
        Unit::of(params).room(params.symbol_bytes) >= self.mtu()
    }

    /// The rule that is broken, with the sizes at fault.
    fn rule(&self) -> String {
        let params = &self.flow.params;
        let Tunnel { name, addresses, mtu, .. } = self.tunnel;
        let (unit, bytes) = (Unit::of(params), params.symbol_bytes);
        let room = unit.room(bytes);
        let holds = match params.code {
            FlowCode::Stream(_) => format!(
                "each packet takes a symbol, and symbols of {bytes} bytes have room for {room} bytes"
            ),
            FlowCode::Rlnc => format!(
                "symbols of {bytes} bytes give a generation room for a packet of {room} bytes and \
                 its length"
            ),
            #[cfg(feature = "bats")]
            FlowCode::Bats(_) => format!(
                "symbols of {bytes} bytes give a block room for a packet of {room} bytes and its \
                 length"
            ),
        };
        let least = tunnel_mtu_min(addresses);
        let family = if least == TUNNEL_MTU_MIN_V4 { "IPv4" } else { "IPv6" };
        let is_least = *mtu == least;
        let least =
            if is_least { format!(", the least of an {family} tunnel") } else { String::new() };
        format!("{holds}, but tunnel {name} has mtu {mtu}{least}: {}", self.cure(&unit))
    }

    /// Suggests a change. Any value suggested passes all rules on sizes; `budget` checks memory.
    fn cure(&self, unit: &Unit) -> String {
        let room = unit.room(self.flow.params.symbol_bytes);
        if let Some(symbols) = self.symbols_min(unit) {
            let code = if self.flow.written.code { "" } else { "with code = \"rlnc\", " };
            return format!("{code}{} = {symbols} is the least that works", unit.key);
        }
        if room >= usize::from(tunnel_mtu_min(&self.tunnel.addresses)) {
            return format!("the file can give it mtu = {room}");
        }
        if let Some(bytes) = self.symbol_bytes_min(unit) {
            return format!(
                "the file can give the flow symbol_bytes = {bytes}, the least that works"
            );
        }
        let other = if unit.symbols_max == 0 { ", or the flow needs another code" } else { "" };
        format!("its links must carry larger packets{other}")
    }

    /// Fewest symbols of a unit that fit a packet.
    fn symbols_min(&self, unit: &Unit) -> Option<usize> {
        (unit.symbols + 1..=unit.symbols_max).find(|symbols| {
            let mut params = self.flow.params.clone();
            match &mut params.code {
                #[cfg(feature = "bats")]
                FlowCode::Bats(bats) => bats.source_symbols = *symbols,
                _ => params.generation_size = *symbols,
            }
            if !self.flow.written.symbol_bytes {
                // Longer coding vectors leave less room for a symbol.
                params.symbol_bytes = self.paths.symbol_room(&params).default;
            }
            self.is_allowed(&params) && self.holds(&params)
        })
    }

    /// Shortest symbols that let this unit hold a packet.
    fn symbol_bytes_min(&self, unit: &Unit) -> Option<usize> {
        let payload_bytes = (self.mtu() + unit.overhead).div_ceil(unit.symbols);
        let symbol_bytes = payload_bytes + unit.tag_bytes;
        let params = FlowParams { symbol_bytes, ..self.flow.params.clone() };
        self.is_allowed(&params).then_some(symbol_bytes)
    }

    /// Whether next hops and frames carry these symbols.
    fn is_allowed(&self, params: &FlowParams) -> bool {
        let most = self.paths.symbol_room(params).most;
        (SYMBOL_BYTES_MIN..=most).contains(&params.symbol_bytes)
            && params.frame_bytes_min() <= self.paths.frame_size.bytes()
    }
}

/// The largest value of a numeric key of flows; zero for other keys.
fn most(key: &str) -> usize {
    match FLOW.find(key).map(|key| key.values) {
        Some(Values::Whole(_, most)) => usize::try_from(most).unwrap_or(usize::MAX),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::super::symbol::Mtus;
    use super::super::tests::{HEAD, SOURCE, parse};
    use super::*;

    /// Two bytes and an envelope of 25.
    const SEALING: usize = 27;

    #[test]
    fn sealing_takes_room_of_units_and_of_the_mtu_of_tunnels() {
        let Config { mut flows, tunnels, links, hops, .. } =
            parse(&format!("{HEAD}{SOURCE}")).expect("valid");
        let mtus = Mtus::default();
        let frame_size = mtus.frames();
        let paths = Paths { links: &links, hops: &hops, mtus: &mtus, frame_size };
        let mut of = |sealed| {
            flows[0].params.sealed = sealed;
            let mut tunnels: Vec<_> = tunnels.iter().map(|it| (it.clone(), false)).collect();
            default_tunnel_mtus(&mut tunnels, &flows, paths);
            let room = Unit::of(&flows[0].params).room(flows[0].params.symbol_bytes);
            (usize::from(tunnels[0].0.mtu), room)
        };
        let ((mtu, room), (sealed_mtu, sealed_room)) = (of(false), of(true));
        assert_eq!((mtu - sealed_mtu, room - sealed_room), (SEALING, SEALING));
        assert!(sealed_mtu <= sealed_room, "{sealed_mtu} in {sealed_room}");
    }

    #[test]
    fn tags_take_room_of_each_symbol() {
        let Config { flows, .. } = parse(&format!("{HEAD}{SOURCE}")).expect("valid");
        let mut params = flows[0].params.clone();
        let stream = params.code;
        let mut room = |code, tagged, strict| {
            (params.code, params.generation_size) = (code, 16);
            (params.tagged, params.strict) = (tagged, strict);
            Unit::of(&params).room(params.symbol_bytes)
        };
        for (strict, bytes) in [(false, 8), (true, 16)] {
            let mut takes = |code| room(code, false, strict) - room(code, true, strict);
            assert_eq!((takes(FlowCode::Rlnc), takes(stream)), (16 * bytes, bytes));
        }
    }
}
