//! What precedes the bytes of a connection in its stream: host and server, and the answer.
//!
//! ```text
//!  request:  1 | family 4 or 6 | address of the host | port | address of the server | port
//!  answer:   0 connected | 1 refused | 2 unreachable | 3 no answer | 4 forbidden | 5 no room
//! ```
//! Numbers are in network byte order.

use quinn::{RecvStream, SendStream};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Version of the request.
const VERSION: u8 = 1;

/// Longest request: two IPv6 addresses and ports.
const BYTES_MAX: usize = 2 + 2 * 18;

/// Why a request is invalid.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("the request of a stream is of version {0}, not 1: run the same release at both edges")]
    Version(u8),
    #[error("the request of a stream has address family {0}, not 4 or 6")]
    Family(u8),
    #[error("the request of a stream is too short")]
    Short,
    #[error("the answer to a request is {0}, which means nothing")]
    Answer(u8),
}

/// A connection that a host wants.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Request {
    pub(crate) host: SocketAddr,
    /// Of the same family.
    pub(crate) server: SocketAddr,
}

impl Request {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES_MAX);
        bytes.extend([VERSION, if self.host.is_ipv4() { 4 } else { 6 }]);
        for end in [self.host, self.server] {
            match end.ip() {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
            bytes.extend(end.port().to_be_bytes());
        }
        bytes
    }

    fn decode(family: u8, bytes: &[u8]) -> Result<Request, Invalid> {
        let end = |bytes: &[u8]| -> Option<SocketAddr> {
            let (address, port) = bytes.split_last_chunk::<2>()?;
            let address = match family {
                4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(address).ok()?)),
                _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?)),
            };
            Some(SocketAddr::new(address, u16::from_be_bytes(*port)))
        };
        let (host, server) = bytes.split_at_checked(bytes.len() / 2).ok_or(Invalid::Short)?;
        let (host, server) = (end(host), end(server));
        Ok(Request { host: host.ok_or(Invalid::Short)?, server: server.ok_or(Invalid::Short)? })
    }

    /// Sends the request.
    pub(crate) async fn send(&self, stream: &mut SendStream) -> io::Result<()> {
        Ok(stream.write_all(&self.encode()).await?)
    }

    /// Receives a request.
    pub(crate) async fn receive(stream: &mut RecvStream) -> io::Result<Request> {
        let mut first = [0; 2];
        stream.read_exact(&mut first).await.map_err(io::Error::other)?;
        let [version, family] = first;
        if version != VERSION {
            return Err(io::Error::other(Invalid::Version(version)));
        }
        let bytes = match family {
            4 => 2 * 6,
            6 => 2 * 18,
            _ => return Err(io::Error::other(Invalid::Family(family))),
        };
        let mut rest = [0; BYTES_MAX];
        let rest = &mut rest[..bytes];
        stream.read_exact(rest).await.map_err(io::Error::other)?;
        Request::decode(family, rest).map_err(io::Error::other)
    }
}

/// What became of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Connected,
    Refused,
    Unreachable,
    Silent,
    Forbidden,
    Full,
}

impl Answer {
    const ALL: [Answer; 6] = [
        Answer::Connected,
        Answer::Refused,
        Answer::Unreachable,
        Answer::Silent,
        Answer::Forbidden,
        Answer::Full,
    ];

    /// The answer that an error of connecting means.
    pub(crate) fn of(error: &io::Error) -> Answer {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Answer::Refused,
            io::ErrorKind::TimedOut => Answer::Silent,
            io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => Answer::Full,
            io::ErrorKind::PermissionDenied => Answer::Forbidden,
            _ => Answer::Unreachable,
        }
    }

    /// Whether the server, or a network before it, said that there is no connection.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(self, Answer::Refused | Answer::Unreachable | Answer::Forbidden)
    }

    pub(crate) async fn send(self, stream: &mut SendStream) -> io::Result<()> {
        let number = Answer::ALL.iter().position(|answer| *answer == self).unwrap_or_default();
        Ok(stream.write_all(&[number as u8]).await?)
    }

    pub(crate) async fn receive(stream: &mut RecvStream) -> io::Result<Answer> {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.map_err(io::Error::other)?;
        let answer = Answer::ALL.get(usize::from(byte[0])).copied();
        answer.ok_or_else(|| io::Error::other(Invalid::Answer(byte[0])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_was_sent_and_short_ones_are_refused() {
        for (host, server) in
            [("10.1.0.5:40000", "192.0.2.7:443"), ("[2001:db8::5]:40000", "[2001:db8:1::7]:22")]
        {
            let parse = |end: &str| end.parse().expect("an address");
            let request = Request { host: parse(host), server: parse(server) };
            let bytes = request.encode();
            let [version, family, rest @ ..] = bytes.as_slice() else { panic!("{bytes:?}") };
            assert_eq!(*version, VERSION);
            assert_eq!(Request::decode(*family, rest), Ok(request));
            for short in 0..rest.len() {
                assert_eq!(Request::decode(*family, &rest[..short]), Err(Invalid::Short));
            }
        }
    }

    #[test]
    fn errors_of_connecting_have_answers() {
        let of = |kind| Answer::of(&io::Error::from(kind));
        assert_eq!(of(io::ErrorKind::ConnectionRefused), Answer::Refused);
        assert_eq!(of(io::ErrorKind::TimedOut), Answer::Silent);
        assert_eq!(of(io::ErrorKind::HostUnreachable), Answer::Unreachable);
        assert_eq!(of(io::ErrorKind::AddrInUse), Answer::Full);
    }
}
