//! Other MACs, and WireGuard by boringtun.

use std::hash::Hasher;
use std::hint::black_box;

use aegis::aegis128l::Aegis128LMac;
use aws_lc_rs::aead::{AES_128_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use siphasher::sip::SipHasher24;

use super::work::{PacketWork, named, packets};

/// All of them.
pub fn all(bytes: usize) -> Vec<Box<dyn PacketWork>> {
    vec![
        gmac(bytes, false),
        gmac(bytes, true),
        aegis(bytes),
        siphash(bytes),
        siphash(64),
        blake3(bytes),
        boringtun(bytes),
    ]
}

fn nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_be_bytes());
    nonce
}

fn gmac(bytes: usize, both_ways: bool) -> Box<dyn PacketWork> {
    let key = |algorithm: &'static Algorithm, byte| {
        LessSafeKey::new(UnboundKey::new(algorithm, &[byte; 16]).expect("16 bytes"))
    };
    let keys = [key(&AES_128_GCM, 1), key(&AES_128_GCM, 2)];
    let (packets, mut counter) = (packets(bytes), 0);
    let (name, used) =
        if both_ways { ("AES-128-GMAC, in and out", 2) } else { ("AES-128-GMAC", 1) };
    named(name, move |number| {
        counter += 1;
        for key in &keys[..used] {
            let nonce = Nonce::assume_unique_for_key(nonce(counter));
            let aad = Aad::from(&packets[number][..]);
            let tag = key.seal_in_place_separate_tag(nonce, aad, &mut []).expect("a tag");
            black_box(tag.as_ref()[0]);
        }
    })
}

fn aegis(bytes: usize) -> Box<dyn PacketWork> {
    let (packets, mut counter) = (packets(bytes), 0_u64);
    named("AEGIS-128L MAC (libaegis)", move |number| {
        counter += 1;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&counter.to_le_bytes());
        let mut mac = Aegis128LMac::<16>::new_with_nonce(&[3; 16], &nonce);
        mac.update(&packets[number]);
        black_box(mac.finalize()[0]);
    })
}

fn siphash(bytes: usize) -> Box<dyn PacketWork> {
    let packets = packets(bytes);
    named(format!("SipHash-2-4 of {bytes} bytes"), move |number| {
        let mut hasher = SipHasher24::new_with_key(&[4; 16]);
        hasher.write(&packets[number]);
        black_box(hasher.finish());
    })
}

fn blake3(bytes: usize) -> Box<dyn PacketWork> {
    let packets = packets(bytes);
    named("BLAKE3, keyed", move |number| {
        black_box(blake3::keyed_hash(&[5; 32], &packets[number]).as_bytes()[0]);
    })
}

/// A tunnel of WireGuard in user space: from an IP packet to a UDP payload.
fn boringtun(bytes: usize) -> Box<dyn PacketWork> {
    let secrets = [1, 2].map(|byte| StaticSecret::from([byte; 32]));
    let publics = secrets.each_ref().map(PublicKey::from);
    let mut index = 0;
    let mut ends = [(0, 1), (1, 0)].map(|(own, peer)| {
        index += 1;
        Tunn::new(secrets[own].clone(), publics[peer], None, None, index, None)
    });
    let mut buffers = [vec![0; bytes + 200], vec![0; bytes + 200]];
    // Initiation, response, and the keepalive that confirms it.
    let [there, back] = &mut buffers;
    let mut length = match ends[0].format_handshake_initiation(there, false) {
        TunnResult::WriteToNetwork(message) => message.len(),
        _ => panic!("no initiation"),
    };
    for turn in 1..=2 {
        let (read, written) = if turn == 1 { (&*there, &mut *back) } else { (&*back, &mut *there) };
        length = match ends[turn % 2].decapsulate(None, &read[..length], written) {
            TunnResult::WriteToNetwork(message) => message.len(),
            _ => panic!("no answer"),
        };
    }
    let [mut sender, _] = ends;
    let mut packets = packets(bytes);
    for packet in &mut packets {
        // An IPv4 packet, by version and length.
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    }
    let [mut out, _] = buffers;
    named("boringtun: ChaCha20-Poly1305, sealed", move |number| {
        match sender.encapsulate(&packets[number], &mut out) {
            TunnResult::WriteToNetwork(message) => black_box(message.len()),
            _ => panic!("boringtun has no session"),
        };
    })
}
