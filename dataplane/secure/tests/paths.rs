//! Two nodes with several paths between them agree on keys for each: a message of one path is
//! invalid on another one, even if the number of the path is rewritten.

#![forbid(unsafe_code)]

use recoded_secure::{
    Association, Entropy, HANDSHAKE_BYTES_MAX, HopKeys, Identity, PresharedKey, PrivateKey,
    Refused, Scope, Suite, TRAILER_BYTES, Turn, open_hop, path_of,
};

const SECOND: u64 = 1_000_000_000;
const PORT: u16 = 49_155;

/// Offsets of the path in a message: in an initiation, and in a response.
const PATH: usize = 3;
const PATH_OF_RESPONSE: usize = 2;

fn entropy(byte: u8) -> Entropy {
    Entropy::new([byte; 64])
}

fn private(side: u8) -> PrivateKey {
    PrivateKey::generate(&entropy(side + 1))
}

fn end(side: u8, path: u8) -> Association<HopKeys> {
    let identity = Identity {
        scope: Scope::Hop,
        private: private(side),
        peer: private(1 - side).public(),
        psk: PresharedKey::none(),
    };
    Association::new(identity, Suite::Aes128Gcm, 0, &entropy(20 + path)).over(path)
}

fn initiation(end: &mut Association<HopKeys>, byte: u8) -> Vec<u8> {
    let mut out = [0; HANDSHAKE_BYTES_MAX];
    let turn = end.poll(SECOND, 1, &entropy(byte), &mut out).unwrap();
    out[..turn.send].to_vec()
}

fn receive(end: &mut Association<HopKeys>, message: &[u8]) -> Result<(Turn, Vec<u8>), Refused> {
    let mut out = [0; HANDSHAKE_BYTES_MAX];
    let turn = end.receive(SECOND, &entropy(60), message, &mut out)?;
    Ok((turn, out[..turn.send].to_vec()))
}

/// The message relabelled for another path. It is read although its MAC is wrong: the handshake
/// itself must refuse it.
fn renumbered(message: &[u8], place: usize, path: u8) -> Vec<u8> {
    let mut changed = message.to_vec();
    changed[place] = path;
    changed
}

#[test]
fn each_path_has_keys_of_its_own_and_messages_name_it() {
    let mut ends = [0, 7].map(|path| [end(0, path), end(1, path)]);
    let mut packets = Vec::new();
    for ([here, there], path) in ends.iter_mut().zip([0, 7]) {
        let sent = initiation(here, 40 + path);
        assert_eq!(path_of(&sent), Some(path));
        assert!(there.is_from_peer(&sent), "whichever path it is of");
        let (_, answer) = receive(there, &sent).unwrap();
        assert_eq!(path_of(&answer), Some(path));
        let (turn, _) = receive(here, &answer).unwrap();
        assert!(turn.hello, "both have keys");
        let mut packet = vec![1; 40 + TRAILER_BYTES];
        here.ring().sending().unwrap().keys.seal(&mut packet, PORT).unwrap();
        packets.push(packet);
    }
    let [[_, first], [_, second]] = &ends;
    let opens = |end: &Association<HopKeys>, packet: &[u8]| {
        open_hop(&mut end.ring().clone(), packet, PORT).is_ok()
    };
    assert!(!opens(second, &packets[0]) && !opens(first, &packets[1]), "keys of the other path");
    assert!(opens(first, &packets[0]) && opens(second, &packets[1]));
}

#[test]
fn message_of_one_path_is_refused_on_another_as_it_is_and_renumbered() {
    let (mut here, mut there, mut other) = (end(0, 1), end(1, 1), end(1, 2));
    let sent = initiation(&mut here, 41);
    // The same peer with another path number at this end is reported as such.
    assert_eq!(receive(&mut other, &sent).err(), Some(Refused::OtherPath));
    let forged = renumbered(&sent, PATH, 2);
    assert_eq!(receive(&mut other, &forged).err(), Some(Refused::Handshake));
    assert_eq!(other.agreed(), 0);
    let (_, answer) = receive(&mut there, &sent).unwrap();
    let forged = renumbered(&answer, PATH_OF_RESPONSE, 2);
    assert_eq!(receive(&mut here, &forged).err(), Some(Refused::OtherPath));
    // A pending initiation of the other path does not accept it, even with its own number written
    // in.
    let mut elsewhere = end(0, 2);
    initiation(&mut elsewhere, 42);
    assert!(receive(&mut elsewhere, &forged).is_err());
    assert!(receive(&mut here, &answer).is_ok(), "nothing has changed");
    // A recorded message of one path is not accepted later on another one, either.
    assert_eq!(receive(&mut other, &renumbered(&sent, PATH, 2)).err(), Some(Refused::Handshake));
}
