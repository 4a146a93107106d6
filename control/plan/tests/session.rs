//! Whole sessions over the loopback interface, with listeners and clients that are honest, of
//! another version, or hostile. No privileges.

#![forbid(unsafe_code)]

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use recoded_plan::error::MeasureError;
use recoded_plan::forecast::{Direction, Forecast, Hop, Verdict};
use recoded_plan::listen::{Limits, Listener};
use recoded_plan::measure::{MeasurementOptions, measure};
use recoded_plan::packet::{BYTES_MAX, Body, OPENING_BYTES, Packet, Refusal, VERSION};
use recoded_plan::socket::header_bytes;
use recoded_plan::summary::Summary;
use recoded_plan::train::{PACKETS_MAX, PAYLOAD_BYTES_MAX};

const LOOPBACK: &str = "127.0.0.1:0";
const LOOPBACK_V6: &str = "[::1]:0";

fn options(rate_max_mbit: f64) -> MeasurementOptions {
    MeasurementOptions { seconds: 1.0, rate_max_mbit }
}

/// A listener that ends after `seconds`.
fn listener(seconds: u64) -> (SocketAddr, std::thread::JoinHandle<recoded_plan::listen::Served>) {
    listener_at(LOOPBACK, seconds)
}

fn listener_at(
    local: &str,
    seconds: u64,
) -> (SocketAddr, std::thread::JoinHandle<recoded_plan::listen::Served>) {
    let limits = Limits { rate_max_mbit: 50.0, length: Duration::from_secs(seconds) };
    let local = local.parse().expect("an address");
    let mut listener = Listener::bind(local, limits).expect("bind");
    let at = listener.local().expect("an address");
    (at, std::thread::spawn(move || listener.run(|_| ()).expect("it listens")))
}

fn bytes(token: [u8; 16], body: Body, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length.max(BYTES_MAX)];
    let written = Packet { token, body }.write(&mut bytes).expect("it fits");
    bytes.truncate(written.max(length));
    bytes
}

/// The packet that arrives within a fifth of a second, if any.
fn answer(socket: &UdpSocket) -> Option<Packet> {
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let mut bytes = [0; 2048];
    let length = socket.recv(&mut bytes).ok()?;
    Packet::parse(&bytes[..length]).ok()
}

#[test]
fn path_within_this_host_is_measured_up_to_the_limit_and_not_worth_it() {
    path_within_this_host(LOOPBACK);
}

#[test]
fn path_within_this_host_is_measured_over_ipv6_as_well() {
    if UdpSocket::bind(LOOPBACK_V6).is_err() {
        println!("skipped: this host has no IPv6 on its loopback interface");
        return;
    }
    path_within_this_host(LOOPBACK_V6);
}

fn path_within_this_host(local: &str) {
    let (at, served) = listener_at(local, 15);
    let measured = measure(&at.to_string(), &options(20.0), |_| ()).expect("it is measured");
    println!("{measured:?}");
    for way in [&measured.there, &measured.back] {
        assert!(way.loss < 1e-3, "{way:?}");
        assert!(way.rate_mbit > 17.0 && way.rate_mbit < 20.1, "{way:?}");
        // The loopback interface allows larger packets than a measurement sends.
        let most = PAYLOAD_BYTES_MAX as u16 + header_bytes(at.ip());
        assert_eq!(way.mtu, most, "{way:?}");
    }
    assert_eq!(measured.check(), Ok(()));
    assert!(measured.interface.is_some());
    let hop = Hop::new(&measured, Direction::There);
    let forecast = Forecast::new(Direction::There, &[hop]).expect("a forecast");
    assert_eq!(forecast.verdict, Verdict::No);
    let json = serde_json::to_string(&measured).expect("JSON");
    let again: recoded_plan::measured::Measured = serde_json::from_str(&json).expect("JSON");
    assert_eq!(again.to, measured.to);
    let served = served.join().expect("it ends");
    assert_eq!((served.sessions, served.ignored), (1, 0));
}

#[test]
fn closed_port_silence_and_unknown_name_are_told_apart() {
    let gone = UdpSocket::bind(LOOPBACK).and_then(|socket| socket.local_addr()).expect("a port");
    let error = measure(&gone.to_string(), &options(1.0), |_| ()).expect_err("a closed port");
    assert!(matches!(error, MeasureError::NotListening(at) if at == gone), "{error}");
    assert!(error.to_string().contains("recodectl plan --listen"));
    let silent = UdpSocket::bind(LOOPBACK).expect("bind");
    let at = silent.local_addr().expect("an address");
    let error = measure(&at.to_string(), &options(1.0), |_| ()).expect_err("silence");
    assert!(matches!(error, MeasureError::Silent(_)), "{error}");
    assert!(error.to_string().contains(&format!("UDP port {}", at.port())), "{error}");
    let error = measure("no such host", &options(1.0), |_| ()).expect_err("no name");
    assert!(matches!(error, MeasureError::Resolve { .. }), "{error}");
}

#[test]
fn listener_of_another_version_is_named_and_answers_in_its_own() {
    let other = UdpSocket::bind(LOOPBACK).expect("bind");
    let at = other.local_addr().expect("an address");
    let answering = std::thread::spawn(move || {
        let (_, from) = other.recv_from(&mut [0; 2048]).expect("a packet");
        let mut reply = bytes([0; 16], Body::Refused { nonce: 0, refusal: Refusal::Version }, 0);
        reply[4] = VERSION + 1;
        other.send_to(&reply, from).expect("sent");
    });
    let error = measure(&at.to_string(), &options(1.0), |_| ()).expect_err("a version");
    assert!(matches!(error, MeasureError::Version { theirs, .. } if theirs == VERSION + 1));
    answering.join().expect("it answers");

    let (at, served) = listener(1);
    let client = UdpSocket::bind(LOOPBACK).expect("bind");
    let mut hello = bytes([0; 16], Body::Hello { nonce: 1 }, OPENING_BYTES);
    hello[4] = VERSION + 1;
    client.send_to(&hello, at).expect("sent");
    let refused = Body::Refused { nonce: 0, refusal: Refusal::Version };
    assert_eq!(answer(&client).map(|packet| packet.body), Some(refused));
    assert_eq!(served.join().expect("it ends").refused, 1);
}

/// The token of a new session, and its socket.
fn open(at: SocketAddr) -> (UdpSocket, [u8; 16]) {
    let client = UdpSocket::bind(LOOPBACK).expect("bind");
    client.connect(at).expect("connect");
    client.send(&bytes([0; 16], Body::Hello { nonce: 7 }, OPENING_BYTES)).expect("sent");
    let cookie = answer(&client).expect("a cookie");
    assert_eq!(cookie.body, Body::Cookie { nonce: 7 });
    (client, cookie.token)
}

#[test]
fn listener_answers_nothing_that_is_short_unproved_replayed_or_not_of_its_client() {
    let (at, served) = listener(6);
    let third = UdpSocket::bind(LOOPBACK).expect("bind");
    let (client, token) = open(at);
    let opening = bytes(token, Body::Open { nonce: 8 }, OPENING_BYTES);
    for wrong in [
        // Shorter than any response to it.
        bytes([0; 16], Body::Hello { nonce: 7 }, 0),
        bytes([9; 16], Body::Open { nonce: 8 }, OPENING_BYTES),
        // The token of another port.
        opening.clone(),
        bytes(token, Body::Ping { number: 1, at: 1 }, 0),
        vec![0; 1400],
        b"RcPL".to_vec(),
    ] {
        third.send_to(&wrong, at).expect("sent");
        assert_eq!(answer(&third), None);
    }
    client.send(&bytes(token, Body::Ping { number: 1, at: 1 }, 0)).expect("sent");
    assert_eq!(answer(&client), None, "no session is open yet");
    client.send(&opening).expect("sent");
    assert!(matches!(answer(&client), Some(Packet { body: Body::Opened { nonce: 8, .. }, .. })));
    // Replayed from another address, it opens nothing and ends nothing.
    third.send_to(&opening, at).expect("sent");
    third.send_to(&bytes(token, Body::Bye, 0), at).expect("sent");
    assert_eq!(answer(&third), None);
    client.send(&bytes(token, Body::Ping { number: 5, at: 9 }, 0)).expect("sent");
    assert!(matches!(answer(&client), Some(Packet { body: Body::Pong { number: 5, .. }, .. })));

    let (second, other) = open(at);
    second.send(&bytes(other, Body::Open { nonce: 3 }, OPENING_BYTES)).expect("sent");
    let refused = answer(&second).map(|packet| packet.body);
    let is_busy = |body| matches!(body, Some(Body::Refused { refusal: Refusal::Busy(_), .. }));
    assert!(is_busy(refused), "{refused:?}");
    let error = measure(&at.to_string(), &options(1.0), |_| ()).expect_err("busy");
    assert!(matches!(error, MeasureError::Busy(..)), "{error}");
    let served = served.join().expect("it ends");
    assert_eq!((served.sessions, served.refused), (1, 2));
    assert!(served.ignored >= 7, "{served:?}");
}

/// Requests that would harm others, or cost memory.
#[test]
fn client_that_asks_for_too_much_gets_what_is_allowed() {
    let (at, served) = listener(4);
    let (client, token) = open(at);
    client.send(&bytes(token, Body::Open { nonce: 8 }, OPENING_BYTES)).expect("sent");
    answer(&client).expect("a session");
    let began = Instant::now();
    let ask =
        Body::Send { train: u32::MAX, packets: u32::MAX, payload_bytes: 1400, interval_nanos: 0 };
    client.send(&bytes(token, ask, 0)).expect("sent");
    let (mut came, mut sent) = (0_u64, None);
    while let Some(packet) = answer(&client) {
        match packet.body {
            Body::Data { .. } => came += 1,
            Body::Sent { sent: packets, .. } => sent = Some(packets),
            _ => {}
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    // 50 Mbit/s for 0.6 s at most.
    assert!(came < 2700, "{came} in {seconds} s");
    assert!(sent.is_some_and(|sent| sent < 2700), "{sent:?}");
    for body in [
        Body::Data { train: 1, number: u32::MAX, at: u64::MAX },
        Body::Data { train: u32::MAX, number: PACKETS_MAX, at: 0 },
        Body::ProbeBack { payload_bytes: u16::MAX },
        Body::Ask { train: 0, sent: u32::MAX },
        Body::Ask { train: u32::MAX, sent: u32::MAX },
    ] {
        client.send(&bytes(token, body, 0)).expect("sent");
    }
    let report = std::iter::from_fn(|| answer(&client)).find_map(|packet| match packet.body {
        Body::Report(summary) => Some(summary),
        _ => None,
    });
    assert_eq!(report.map(|summary| (summary.sent, summary.received)), Some((PACKETS_MAX, 0)));
    served.join().expect("it ends");
}

/// A listener that sends random values: impossible figures are refused, and the client ends.
#[test]
fn client_survives_a_listener_that_lies() {
    for seed in 0..6 {
        let liar = UdpSocket::bind(LOOPBACK).expect("bind");
        let at = liar.local_addr().expect("an address");
        let over = AtomicBool::new(false);
        let began = Instant::now();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| lie(&liar, &over, seed));
            let outcome = measure(&at.to_string(), &options(5.0), |_| ());
            over.store(true, Ordering::Relaxed);
            outcome
        });
        println!("seed {seed}: {outcome:?}");
        if let Ok(measured) = outcome {
            assert!(measured.check().is_ok() || measured.there.rate_mbit < 1e-3);
        }
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}

fn lie(liar: &UdpSocket, over: &AtomicBool, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    liar.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let mut incoming = [0; 10_000];
    while !over.load(Ordering::Relaxed) {
        let Ok((length, from)) = liar.recv_from(&mut incoming) else { continue };
        let Ok(packet) = Packet::parse(&incoming[..length]) else { continue };
        let any = |random: &mut SmallRng| match random.random_range(0..4) {
            0 => 0,
            1 => u32::MAX,
            _ => random.random::<u32>() >> random.random_range(0..32),
        };
        let body = match packet.body {
            Body::Hello { nonce } => Body::Cookie { nonce },
            Body::Open { nonce } => {
                Body::Opened { nonce, rate_max_kbit: any(&mut random), seconds: 0 }
            }
            Body::Ping { at, .. } => {
                let at = if random.random() { at } else { u64::from(any(&mut random)) };
                Body::Pong { number: any(&mut random) % 200, at, held_nanos: any(&mut random) }
            }
            Body::Probe { .. } | Body::ProbeBack { .. } => {
                Body::Probed { payload_bytes: any(&mut random) as u16 }
            }
            Body::Ask { train, sent } => Body::Report(Summary {
                train,
                sent,
                received: any(&mut random) % sent.saturating_add(2),
                span_packets: any(&mut random),
                span_came_nanos: u64::from(any(&mut random)),
                way_min_nanos: i64::MIN,
                queue_max_nanos: u64::from(any(&mut random)),
                ..Summary::default()
            }),
            Body::Send { train, .. } => {
                let data = Body::Data { train, number: any(&mut random), at: u64::MAX };
                liar.send_to(&bytes([1; 16], data, 900), from).ok();
                Body::Sent { train, sent: any(&mut random) }
            }
            _ => continue,
        };
        liar.send_to(&bytes([1; 16], body, 0), from).ok();
    }
}
