//! Independent checks of the published documents: sums in scalar arithmetic that shares nothing
//! with the kernels, and decoders that get only the packets.

use std::fs;
use std::path::Path;

use recoded_code::bats::{Decoder, Gain, Limits, Operand, Params, Rows};
use recoded_code::reed_solomon::ReedSolomon;
use recoded_code::rlnc::{self, Coding, Density, Seeded, draw};
use recoded_code::vector::unpack;
use recoded_code::window::{self, Parameters, Received, Scheme};
use recoded_gf::FieldOrder;
use recoded_vectors::window::Packet;
use recoded_vectors::{Hex, bats, field, hops, reed_solomon, wire};
use recoded_wire::announcement::parse_announcement;
use recoded_wire::coded::PackedCoding;
use recoded_wire::feedback::items;
use recoded_wire::header::PacketType;
use recoded_wire::link::link_gaps;
use recoded_wire::parse::{Packet as Parsed, parse};
use recoded_wire::stream::{Combination, StreamBody};
use serde::de::DeserializeOwned;

fn published<T: DeserializeOwned>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("json").join(format!("{name}.json"));
    let text = fs::read_to_string(&path).expect("a published document");
    serde_json::from_str(&text).expect("a document of this schema")
}

/// Multiplication modulo x^8 + x^4 + x^3 + x^2 + 1, bit by bit.
fn product(a: u8, b: u8) -> u8 {
    let mut shifted = u16::from(a);
    let mut sum = 0;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            sum ^= shifted;
        }
        shifted <<= 1;
        if shifted & 0x100 != 0 {
            shifted ^= 0x11D;
        }
    }
    sum as u8
}

/// The sum of coefficient times row.
fn combination<'a>(coefficients: &Hex, rows: impl IntoIterator<Item = &'a Hex>) -> Hex {
    let mut sum = Vec::new();
    let mut rows = rows.into_iter();
    for &coefficient in &coefficients.0 {
        let row = rows.next().expect("a row per coefficient");
        sum.resize(row.0.len(), 0);
        sum.iter_mut().zip(&row.0).for_each(|(s, &byte)| *s ^= product(coefficient, byte));
    }
    assert!(rows.next().is_none(), "a coefficient per row");
    Hex(sum)
}

/// The common first bytes of every packet, as in `docs/protocol/packets.md`.
fn header_bytes(header: &wire::Header) -> Vec<u8> {
    let mut bytes = vec![0x30 | header.packet_type, header.flags, header.epoch, header.shard];
    bytes.extend(header.flow.to_be_bytes());
    bytes.extend(header.link_sequence.to_be_bytes());
    bytes.push(header.hop_index);
    bytes
}

fn field_of(order: u16) -> FieldOrder {
    FieldOrder::from_order(order).expect("an order of a field")
}

#[test]
fn field_multiplies_and_subfields_are_closed() {
    let document: field::Document = published("field");
    let factors = &document.factors.0;
    for (index, &published) in document.products.0.iter().enumerate() {
        let (row, column) = (index / factors.len(), index % factors.len());
        assert_eq!(published, product(factors[row], factors[column]));
    }
    for (element, &inverse) in (1..=255).zip(&document.inverses.0) {
        assert_eq!(product(element, inverse), 1);
    }
    for subfield in &document.subfields {
        let elements = &subfield.elements.0;
        assert_eq!(elements.len(), usize::from(subfield.order));
        for (&a, &b) in elements.iter().flat_map(|a| elements.iter().map(move |b| (a, b))) {
            assert!(elements.contains(&product(a, b)) && elements.contains(&(a ^ b)));
        }
    }
}

#[test]
fn coded_packets_parse_to_what_they_say() {
    let document: wire::Document = published("wire");
    for packet in &document.coded {
        let Ok(Parsed::Coded(coded)) = parse(&packet.bytes.0) else { panic!("{packet:?}") };
        let header = coded.header;
        assert_eq!(packet.header, wire::Header::from(header.common));
        assert!(packet.bytes.0.starts_with(&header_bytes(&packet.header)));
        let numbers = (header.size, header.full_log2, header.planned, header.generation);
        let published = (packet.size, packet.full_log2, packet.planned, packet.generation);
        assert_eq!(numbers, published);
        assert_eq!(packet.block, coded.block.map(wire::BlockWord::from));
        assert_eq!(packet.bytes.0[coded.symbol_offset..], packet.symbol.0);
        match coded.coding {
            PackedCoding::Systematic(index) => assert_eq!(packet.symbol_index, Some(index)),
            PackedCoding::Vector(vector) => assert_eq!(packet.vector, Some(Hex::from(vector))),
        }
    }
}

#[test]
fn feedback_packets_parse_to_what_they_say() {
    let document: wire::Document = published("wire");
    for packet in &document.feedback {
        let Ok(Parsed::Feedback(header)) = parse(&packet.bytes.0) else { panic!("{packet:?}") };
        assert_eq!(packet.header, wire::Header::from(header.common));
        assert!(packet.bytes.0.starts_with(&header_bytes(&packet.header)));
        assert_eq!((packet.node, packet.number), (header.node, header.number));
        let reports: Vec<wire::FeedbackItem> =
            items(&packet.bytes.0).map(wire::FeedbackItem::from).collect();
        assert_eq!(packet.items, reports);
    }
}

/// Written by hand, as `docs/protocol/packets.md` draws it.
#[test]
fn stream_packets_are_the_bytes_they_say() {
    let document: wire::Document = published("wire");
    for packet in &document.stream {
        let mut bytes = header_bytes(&packet.header);
        bytes.push(packet.window_log2);
        bytes.extend(packet.round_trips.to_be_bytes());
        if let Some(symbol) = &packet.symbol {
            bytes.extend(symbol.number.to_be_bytes());
            bytes.extend(symbol.after.to_be_bytes());
            bytes.extend(symbol.place.to_be_bytes());
            bytes.extend(&symbol.packet.0);
        }
        if let Some(combination) = &packet.combination {
            bytes.extend(combination.first.to_be_bytes());
            let halves = [combination.count, combination.key];
            bytes.extend(halves.into_iter().flat_map(u16::to_be_bytes));
            bytes.extend(&combination.sum.0);
        }
        assert_eq!(bytes, packet.bytes.0);
        let Ok(Parsed::Stream(stream)) = parse(&bytes) else { panic!("{packet:?}") };
        assert_eq!(packet.header, wire::Header::from(stream.header.common));
        let says = (stream.header.window_log2, stream.header.round_trips);
        assert_eq!((packet.window_log2, packet.round_trips), says);
        let symbol = stream.symbol().map(|symbol| hops::Symbol {
            number: symbol.number,
            after: symbol.after,
            place: symbol.place,
            packet: Hex(bytes[bytes.len() - usize::from(symbol.bytes)..].to_vec()),
        });
        assert_eq!(packet.symbol, symbol);
        let combination = match stream.body {
            StreamBody::Combination(Combination { first, count, key }) => {
                Some(hops::Combination { first, count, key, sum: Hex(bytes[24..].to_vec()) })
            }
            _ => None,
        };
        assert_eq!(packet.combination, combination);
    }
}

/// As above.
#[test]
fn link_reports_are_the_bytes_they_say() {
    let document: wire::Document = published("wire");
    for packet in &document.link {
        let mut bytes = header_bytes(&packet.header);
        bytes.extend([0; 3]);
        let words = [packet.from, packet.horizon, packet.latest, packet.arrived];
        bytes.extend(words.into_iter().flat_map(u32::to_be_bytes));
        bytes.extend([packet.held, packet.backlog].into_iter().flat_map(u16::to_be_bytes));
        let counts = [packet.received_bytes, packet.received_packets];
        bytes.extend(counts.into_iter().flat_map(u32::to_be_bytes));
        bytes.extend(packet.beyond.to_be_bytes());
        bytes.extend((packet.missing.len() as u16).to_be_bytes());
        let places = packet.missing.iter().copied().chain([0; 7]).take(7);
        bytes.extend(places.flat_map(u16::to_be_bytes));
        for gap in &packet.gaps {
            let back = u16::try_from(packet.horizon.wrapping_sub(gap.first)).unwrap();
            bytes.extend([back, gap.count].into_iter().flat_map(u16::to_be_bytes));
        }
        assert_eq!(bytes, packet.bytes.0);
        let Ok(Parsed::Link(report)) = parse(&bytes) else { panic!("{packet:?}") };
        assert_eq!(packet.header, wire::Header::from(report.header));
        let says = [report.from, report.horizon, report.latest, report.arrived];
        assert_eq!((words, counts), (says, [report.bytes, report.packets]));
        assert_eq!((packet.held, packet.backlog), (report.held, report.backlog));
        assert_eq!((packet.beyond, &packet.missing[..]), (report.beyond, report.missing.places()));
        let gaps: Vec<hops::Gap> = link_gaps(&report, &bytes).map(hops::Gap::from).collect();
        assert_eq!(packet.gaps, gaps);
    }
}

/// As above.
#[test]
fn messages_of_handshakes_are_the_bytes_they_say() {
    let document: wire::Document = published("wire");
    for packet in &document.handshake {
        let bytes = [header_bytes(&packet.header), vec![0; 3], packet.message.0.clone()].concat();
        assert_eq!(bytes, packet.bytes.0);
        let Ok(Parsed::Handshake(header)) = parse(&bytes) else { panic!("{packet:?}") };
        assert_eq!(packet.header, wire::Header::from(header));
    }
}

/// As above.
#[test]
fn announcements_are_the_bytes_they_say() {
    let document: wire::Document = published("wire");
    for packet in &document.announcement {
        let mut bytes = [header_bytes(&packet.header), vec![0; 3]].concat();
        bytes.extend(packet.software);
        bytes.push(packet.codes);
        bytes.extend(packet.packet_bytes.to_be_bytes());
        bytes.extend(packet.instance.to_be_bytes());
        bytes.extend(packet.clock.to_be_bytes());
        bytes.extend(&packet.marks.0);
        for hops::Said { flow, kind, code, value } in &packet.entries {
            bytes.extend(flow.to_be_bytes());
            bytes.extend([*kind, *code]);
            bytes.extend(value.to_be_bytes());
        }
        assert_eq!(bytes, packet.bytes.0);
        let Ok(Parsed::Announcement(header)) = parse(&bytes) else { panic!("{packet:?}") };
        assert_eq!(packet.header, wire::Header::from(header));
        let (.., entries) = parse_announcement(&bytes).expect("an announcement");
        assert_eq!(entries.count(), packet.entries.len());
    }
}

#[test]
fn every_packet_type_and_every_item_has_a_vector() {
    let document: wire::Document = published("wire");
    let coded = document.coded.iter().map(|packet| packet.header.packet_type);
    let feedback = document.feedback.iter().map(|packet| packet.header.packet_type);
    let stream = document.stream.iter().map(|packet| packet.header.packet_type);
    let link = document.link.iter().map(|packet| packet.header.packet_type);
    let handshake = document.handshake.iter().map(|packet| packet.header.packet_type);
    let types = coded.chain(feedback).chain(stream).chain(link);
    let announcement = document.announcement.iter().map(|packet| packet.header.packet_type);
    let types: Vec<u8> = types.chain(handshake).chain(announcement).collect();
    for packet_type in PacketType::ALL {
        assert!(types.contains(&(packet_type as u8)), "{packet_type:?}");
    }
    let reports = || document.feedback.iter().flat_map(|packet| &packet.items);
    assert!(reports().any(|item| matches!(item, wire::FeedbackItem::Hop { .. })));
    assert!(reports().any(|item| matches!(item, wire::FeedbackItem::Flow { .. })));
    assert!(reports().any(|item| matches!(item, wire::FeedbackItem::Nack { .. })));
    assert!(reports().any(|item| matches!(item, wire::FeedbackItem::Ranks { .. })));
    assert!(reports().any(|item| matches!(item, wire::FeedbackItem::BlockAck { .. })));
}

#[test]
fn generations_are_coded_recoded_and_decoded() {
    let document: recoded_vectors::rlnc::Document = published("rlnc");
    for generation in &document.generations {
        let (field, source) = (field_of(generation.field_order), &generation.source);
        let symbols: Vec<Hex> =
            generation.coded.iter().map(|packet| packet.symbol.clone()).collect();
        let vectors: Vec<Hex> =
            generation.coded.iter().map(|packet| packet.vector.clone()).collect();
        let fresh = generation.recoded.iter().inspect(|packet| {
            assert_eq!(packet.packet.symbol, combination(&packet.coefficients, &symbols));
            assert_eq!(packet.packet.vector, combination(&packet.coefficients, &vectors));
        });
        let mut decoder = rlnc::Decoder::new(source.len()).expect("a small generation");
        let mut held: Vec<&[u8]> = Vec::new();
        for packet in generation.coded.iter().chain(fresh.map(|packet| &packet.packet)) {
            assert_eq!(packet.symbol, combination(&packet.vector, source));
            let mut vector = vec![0; source.len()];
            unpack(field, &packet.packed.0, &mut vector);
            assert_eq!(vector, packet.vector.0);
        }
        for packet in &generation.recoded {
            let vector = &packet.packet.vector.0;
            if decoder.insert(Coding::Vector(vector)).expect("a vector").is_innovative() {
                held.push(&packet.packet.symbol.0);
            }
        }
        assert!(decoder.is_complete(), "field of {}", generation.field_order);
        for (index, expected) in source.iter().enumerate() {
            let mut symbol = vec![0; expected.0.len()];
            decoder.restore(&[index], &held, &mut [symbol.as_mut_slice()]).expect("decoded");
            assert_eq!(&symbol, &expected.0);
        }
    }
    for case in &document.seeded {
        let density =
            case.density.map_or(Density::UNIFORM, |share| Density::share(share).expect("a share"));
        let mut vector = vec![0; case.vector.0.len()];
        let size = vector.len();
        draw(&mut Seeded::new(case.seed, density), field_of(case.field_order), size, &mut vector)
            .expect("symbols are present");
        assert_eq!(vector, case.vector.0);
    }
}

#[test]
fn windows_are_coded_and_decoded() {
    let document: recoded_vectors::window::Document = published("window");
    for session in &document.sessions {
        let scheme = Scheme::from_encoding_id(session.encoding_id).expect("ID 9 or 10");
        let mut decoder = window::Decoder::new(Parameters {
            scheme,
            symbol_bytes: session.symbol_bytes,
            window_symbols: 64,
        })
        .expect("parameters in range");
        let mut symbols: Vec<(u32, Hex)> = Vec::new();
        let mut lost: Vec<(u32, u8, &Hex)> = Vec::new();
        // Whether a repair symbol covers a lost symbol; sparse ones may all have missed it.
        let mut is_covered = false;
        for (number, packet) in session.packets.iter().enumerate() {
            match packet {
                Packet::Source { flow, adu, esi, symbols: own, packet } => {
                    symbols.extend((0..).map(|i| esi.wrapping_add(i)).zip(own.iter().cloned()));
                    // Loses one of those that a single repair symbol can recover.
                    if own.len() == 1 && lost.is_empty() && number > 0 {
                        lost.push((*esi, *flow, adu));
                        continue;
                    }
                    let received = decoder.add_source(*flow, &packet.0).expect("a source packet");
                    assert_eq!(received, Received::New { esi: *esi, adu: &adu.0 });
                }
                Packet::Repair { first, coefficients, packet, .. } => {
                    let of_window = |index: usize| {
                        let esi = first.wrapping_add(index as u32);
                        &symbols.iter().find(|symbol| symbol.0 == esi).expect("in the window").1
                    };
                    let takes = |esi: u32, row: &Hex| {
                        row.0.get(esi.wrapping_sub(*first) as usize).is_some_and(|&c| c != 0)
                    };
                    is_covered |= lost.iter().any(|l| coefficients.iter().any(|r| takes(l.0, r)));
                    let sums = coefficients.iter().map(|row| {
                        let sum = combination(row, (0..row.0.len()).map(of_window));
                        sum.0
                    });
                    assert_eq!(sums.collect::<Vec<_>>().concat(), packet.0[8..]);
                    decoder.add_repair(&packet.0).expect("a repair packet");
                    while let Some(adu) = decoder.next_recovered() {
                        let found = lost.iter().position(|adu_lost| adu_lost.0 == adu.esi);
                        let (_, flow, bytes) = lost.remove(found.expect("it was lost"));
                        assert_eq!(adu.chunks().collect::<Vec<_>>().concat(), bytes.0);
                        assert_eq!(adu.flow, flow);
                        is_covered = false;
                    }
                }
            }
        }
        assert!(lost.is_empty() || !is_covered, "{lost:?}");
    }
}

#[test]
fn blocks_are_coded_recoded_and_decoded() {
    let document: bats::Document = published("bats");
    for block in &document.blocks {
        let intermediate: Vec<&Hex> = block.source.iter().chain(&block.parity).collect();
        let params = Params {
            source_symbols: block.source.len(),
            batch_size: block.batch_size,
            profile: block.profile.parse().expect("a profile"),
            generator_bits: block.generator_bits,
        };
        let mut decoder = Decoder::new(Limits::of(params.source_symbols, params.batch_size));
        decoder.reset(params).expect("within its own limits");
        let mut rows = Rows::new(block.source[0].0.len());
        for (index, batch) in block.batches.iter().enumerate() {
            let chosen = || batch.indices.iter().map(|&index| intermediate[usize::from(index)]);
            for (row, coded) in batch.generator.iter().zip(&batch.coded) {
                assert_eq!(coded, &combination(row, chosen()), "batch {}", batch.id);
                assert!(row.0.iter().all(|&c| u32::from(c) < 1 << block.generator_bits));
            }
            for packet in &batch.recoded {
                assert_eq!(packet.symbol, combination(&packet.vector, &batch.coded));
                let fits = |&c: &u8| field_of(block.field_order).index_of(c).is_some();
                assert!(packet.vector.0.iter().all(fits));
                if index == 0 {
                    continue; // shows a high id, is not needed
                }
                let outcome = decoder.insert(batch.id, &packet.vector.0).expect("a packet");
                if let Gain::Innovative { slot } = outcome {
                    rows.set(Operand::Received(slot), &packet.symbol.0);
                }
            }
        }
        let Ok(()) = decoder.advance(&mut rows, |_| ());
        assert!(decoder.is_complete(), "{}", block.profile);
        for (symbol, bytes) in (0..).zip(&block.source) {
            assert_eq!(rows.get(Operand::Symbol(symbol)), Some(bytes.0.as_slice()));
        }
    }
}

#[test]
fn stripes_are_coded_and_recovered() {
    let document: reed_solomon::Document = published("reed_solomon");
    for code in &document.codes {
        let buffers: Vec<&Hex> = code.data.iter().chain(&code.parity).collect();
        for (row, parity) in code.generator.iter().zip(&code.parity) {
            assert_eq!(parity, &combination(row, &code.data));
        }
        let intact: Vec<&Hex> = code.intact.iter().map(|&id| buffers[id]).collect();
        for (row, &id) in code.recovery.iter().zip(&code.lost) {
            assert_eq!(buffers[id], &combination(row, intact.iter().copied()), "buffer {id}");
        }
        let mut context = ReedSolomon::new(code.data.len(), code.parity.len()).expect("a code");
        let ids = [code.intact.as_slice(), &code.lost].concat();
        let intact: Vec<&[u8]> = intact.iter().map(|buffer| buffer.0.as_slice()).collect();
        let mut recovered: Vec<[u8; 16]> = code.lost.iter().map(|_| [0; 16]).collect();
        let mut wanted: Vec<&mut [u8]> = recovered.iter_mut().map(|b| b.as_mut_slice()).collect();
        context.recover(&ids, &intact, &mut wanted).expect("k intact buffers");
        for (bytes, &id) in recovered.iter().zip(&code.lost) {
            assert_eq!(bytes.as_slice(), buffers[id].0);
        }
    }
}
