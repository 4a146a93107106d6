//! Bundles from a web server, over TLS.

#![forbid(unsafe_code)]

mod common;

use common::{Node, bundle};
use recoded_agent::agent::Agent;
use recoded_agent::bundle::BUNDLE_BYTES_MAX;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// The server's response: status line and body.
type Answers = Arc<Mutex<(String, Vec<u8>)>>;

/// Creates a self-signed certificate for 127.0.0.1 in `folder`. `false` without openssl.
fn certificate(folder: &Path) -> bool {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=test", "-keyout", "key.pem"]);
    openssl.args(["-out", "cert.pem", "-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]).current_dir(folder);
    match openssl.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(error) => {
            common::skipped(&format!("openssl, which makes a certificate: {error}"));
            false
        }
    }
}

/// Serves one request per connection while the test runs; returns its port.
fn serve(folder: &Path, answers: Answers) -> u16 {
    let certificate = CertificateDer::from_pem_file(folder.join("cert.pem")).expect("certificate");
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).expect("key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Clients that do not trust it close the connection.
            let _ = answer(stream.expect("accepted"), &config, &answers);
        }
    });
    port
}

fn answer(
    mut stream: TcpStream,
    config: &Arc<ServerConfig>,
    answers: &Answers,
) -> std::io::Result<()> {
    let mut connection = ServerConnection::new(config.clone()).expect("valid");
    let mut tls = Stream::new(&mut connection, &mut stream);
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tls.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    assert!(request.starts_with(b"GET /fleet/a.bundle "), "{}", request.escape_ascii());
    let (status, body) = answers.lock().expect("no panic").clone();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    tls.write_all(head.as_bytes())?;
    tls.write_all(&body)?;
    tls.conn.send_close_notify();
    tls.flush()
}

#[test]
fn bundles_come_by_https_from_a_server_that_is_verified() {
    let mut node = Node::new("a");
    node.start();
    let folder = node.folder.path().to_owned();
    if !certificate(&folder) {
        return;
    }
    let answers = Answers::default();
    let set = |status: &str, body: &[u8]| {
        *answers.lock().expect("no panic") = (status.to_owned(), body.to_owned());
    };
    let port = serve(&folder, answers.clone());
    let https = format!("https = \"https://127.0.0.1:{port}/fleet/\"");
    let trusted = format!("authorities = \"{}\"", folder.join("cert.pem").display());
    let mut agent = Agent::open(node.settings(&https, &trusted)).expect("it starts");
    let mut step = |status: &str, body: &[u8]| {
        set(status, body);
        agent.step();
        let status = agent.status();
        [&status.trouble, &status.refusal].map(|words| words.clone().unwrap_or_default())
    };
    let [trouble, _] = step("404 Not Found", b"");
    assert!(trouble.contains("there is no bundle for this node at https://"), "{trouble}");
    assert_eq!(step("200 OK", &bundle("a", 1, "# one\n")), ["", ""]);
    assert_eq!(node.in_force(), "# one\n");
    let [trouble, _] = step("302 Found", b"");
    assert!(trouble.ends_with("answers with status 302"), "{trouble}");
    let [_, refusal] = step("200 OK", &vec![b'x'; 2 * BUNDLE_BYTES_MAX]);
    assert!(refusal.contains("it is larger than"), "{refusal}");
    let [_, refusal] = step("200 OK", &bundle("a", 0, "# zero\n"));
    assert!(refusal.contains("version 0 is older"), "{refusal}");
    assert_eq!(step("200 OK", &bundle("a", 2, "# two\n")), ["", ""]);
    assert_eq!(node.in_force(), "# two\n");

    // A server that the authorities did not sign gets no request.
    let other = folder.join("other");
    std::fs::create_dir(&other).expect("folder");
    assert!(certificate(&other));
    let foreign = format!("authorities = \"{}\"", other.join("cert.pem").display());
    let mut agent = Agent::open(node.settings(&https, &foreign)).expect("it starts");
    set("200 OK", &bundle("a", 3, "# three\n"));
    agent.step();
    let trouble = agent.status().trouble.clone().unwrap_or_default();
    assert!(trouble.contains("does not answer: ") && trouble.contains("ertificate"), "{trouble}");
    assert_eq!((node.in_force().as_str(), agent.status().version), ("# two\n", Some(2)));
    let none = format!("authorities = \"{}\"", folder.join("key.pem").display());
    let refused = Agent::open(node.settings(&https, &none)).err().expect("no certificate");
    assert!(refused.to_string().contains("name a PEM file with certificates"), "{refused}");
}
