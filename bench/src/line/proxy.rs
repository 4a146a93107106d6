//! Split TCP: ends a connection and opens the next one, as satellite operators do. One process on
//! every relay, two threads per connection, Linux's default buffers.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use recoded_netns::process::Background;
use recoded_netns::stream::{forget_when_closed, set_congestion_control};
use recoded_netns::traffic::wait_for_listener;
use recoded_netns::{Bed, Namespace};

use crate::error::BenchError;

/// Bytes of one read and one write.
const BLOCK_BYTES: usize = 128 << 10;

/// Relay TCP connections (part of `bench line`)
#[derive(clap::Args)]
pub struct ProxyOptions {
    /// Where connections come in
    #[arg(long)]
    listen: SocketAddr,
    /// Where they go
    #[arg(long)]
    to: SocketAddr,
    /// Congestion control of both
    #[arg(long)]
    control: String,
}

/// Starts a proxy on a host of a bed, from one of its ports to an address, and waits until it
/// listens.
///
/// # Errors
/// [`BenchError`] if it does not.
pub fn start(
    bed: &Bed,
    host: &Namespace,
    port: u16,
    to: SocketAddr,
    control: &str,
) -> Result<Background, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::os("finding this program"))?;
    // The priority of daemons: a forwarding box does little else.
    let mut command = host.command("nice");
    command.args(["-n", "-15"]).arg(&program).args(["line-proxy", "--control", control]);
    command.args(["--listen", &format!("0.0.0.0:{port}"), "--to", &to.to_string()]);
    let log = bed.directory().join(format!("proxy-{}.log", host.name()));
    let proxy = Background::start(&mut command, &log).map_err(BenchError::Bed)?;
    wait_for_listener(host, port).map_err(BenchError::Bed)?;
    Ok(proxy)
}

/// Relays until the process is killed.
///
/// # Errors
/// [`BenchError::Os`] when it cannot listen.
pub fn run(options: &ProxyOptions) -> Result<(), BenchError> {
    let listener = TcpListener::bind(options.listen).map_err(BenchError::os("listening"))?;
    loop {
        let accepted = listener.accept().and_then(|(incoming, _)| {
            let outgoing = TcpStream::connect(options.to)?;
            join(incoming, outgoing, &options.control)
        });
        if let Err(error) = accepted {
            // The connection ends; the next one may succeed.
            eprintln!("to {}: {error}", options.to);
        }
    }
}

/// Copies both directions, in two threads.
fn join(west: TcpStream, east: TcpStream, control: &str) -> std::io::Result<()> {
    for socket in [&west, &east] {
        socket.set_nodelay(true)?;
        set_congestion_control(socket, control)?;
        // Data still queued behind a closed connection must not load the line of the next one.
        forget_when_closed(socket)?;
    }
    let (west_again, east_again) = (west.try_clone()?, east.try_clone()?);
    std::thread::spawn(move || copy(west, east));
    std::thread::spawn(move || copy(east_again, west_again));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut block = vec![0; BLOCK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut block) {
        if to.write_all(&block[..count]).is_err() {
            break;
        }
    }
    // Wakes the thread of the other direction; both sockets may have ended already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
