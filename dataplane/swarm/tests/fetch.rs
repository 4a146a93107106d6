//! Fetching over sockets from sources that are unreachable or contradict themselves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use recoded_swarm::{
    ContentId, Error, GetOptions, KeyPair, Limits, Manifest, ServeOptions, ServerKeys, Serving,
    Store, get,
};

fn serve(manifest: Manifest, content: &[u8], source: KeyPair) -> Serving {
    let options = ServeOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        workers: 1,
        limits: Limits::default(),
        keys: ServerKeys { source: Some(source), datagrams: None },
    };
    let store = Arc::new(Store::complete(manifest, content));
    Serving::start(&store, &options).expect("a free port")
}

fn options(content: ContentId, peers: &[SocketAddr]) -> GetOptions {
    GetOptions {
        content,
        peers: peers.to_vec(),
        key: None,
        rate_kbit: 100_000,
        window: 4,
        serve: None,
        memory_bytes: 1 << 20,
        patience: Duration::from_secs(10),
    }
}

/// One address of a family without a route must not end a transfer from the others. Linux refuses
/// to connect to the broadcast address as it does without a route.
#[test]
fn unreachable_peer_is_no_answer_unless_all_are() {
    let (content, source) = ([7; 50_000], KeyPair::new([9; 32]));
    let manifest = Manifest::describe(&content, 32, 1024, *source.public()).expect("valid");
    let id = manifest.id();
    let serving = serve(manifest, &content, source);
    let unreachable = SocketAddr::from(([255, 255, 255, 255], 7800));
    let mut bytes = Vec::new();
    let stop = AtomicBool::new(false);
    let options_both = options(id, &[unreachable, serving.addresses()[0]]);
    get(&options_both, &mut bytes, &stop).expect("the other peer serves");
    assert_eq!(bytes, content);
    let error = get(&options(id, &[unreachable]), &mut bytes, &stop).err().expect("no peer");
    assert!(error.to_string().contains("cannot connect to 255.255.255.255:7800"), "{error}");
}

/// A source whose manifest contradicts its blocks must not be fetched from forever.
#[test]
fn contradiction_of_manifest_and_checks_ends_with_an_error() {
    let (content, source) = ([7; 50_000], KeyPair::new([9; 32]));
    let mut manifest = Manifest::describe(&content, 32, 1024, *source.public()).expect("valid");
    manifest.segment_hashes[0][0] ^= 1;
    let id = manifest.id();
    let serving = serve(manifest, &content, source);
    let result = get(&options(id, serving.addresses()), &mut Vec::new(), &AtomicBool::new(false));
    let error = result.err().expect("it never matches");
    assert!(matches!(error, Error::Contradiction { .. }), "{error}");
}
