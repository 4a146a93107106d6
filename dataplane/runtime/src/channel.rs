//! Messages with descriptors between two processes of one daemon.
//!
//! A pair of Unix sockets that preserve message boundaries. Each message is JSON of at most
//! [`MESSAGE_BYTES_MAX`] bytes with at most [`DESCRIPTORS_MAX`] descriptors. The receiver trusts
//! neither: a message that is too long, truncated or not JSON is an error.
//!
//! Off the packet path: a few messages a second.

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Longest message: names of 64 links with their MTUs fit several times.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Most descriptors of a message: a tunnel has one for each of up to 64 queues.
pub const DESCRIPTORS_MAX: usize = 128;

/// One end.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Two ends.
    ///
    /// # Errors
    /// Linux has no more descriptors.
    pub fn pair() -> io::Result<(Channel, Channel)> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel(one), Channel(other)))
    }

    /// Sends a message; blocks while the other end is behind.
    ///
    /// # Errors
    /// The other end is gone, or the message is too long.
    pub fn send<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(message, fds, SendFlags::empty())
    }

    /// Sends a message that the other end reads later; never blocks.
    ///
    /// # Errors
    /// As [`Channel::send`], and where there is no room for it.
    pub fn send_now<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(message, fds, SendFlags::DONTWAIT)
    }

    fn send_with<M: Serialize>(
        &self,
        message: &M,
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MESSAGE_BYTES_MAX || fds.len() > DESCRIPTORS_MAX {
            return Err(io::Error::from(ErrorKind::FileTooLarge));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::from(ErrorKind::FileTooLarge));
        }
        let parts = [IoSlice::new(&bytes)];
        retry_on_intr(|| sendmsg(&self.0, &parts, &mut ancillary, flags | SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// The next message, or `None` when the other end is gone.
    ///
    /// # Errors
    /// Linux refuses, or the message is not of this kind.
    pub fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        self.receive_with(RecvFlags::empty())
    }

    /// The next message, or `None` when there is none yet or the other end is gone; never blocks.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub fn receive_now<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        self.receive_with(RecvFlags::DONTWAIT)
    }

    fn receive_with<M: DeserializeOwned>(
        &self,
        flags: RecvFlags,
    ) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let received = retry_on_intr(|| recvmsg(&self.0, &mut parts, &mut ancillary, flags));
        let received = match received {
            // The other end closed with messages unread.
            Err(Errno::CONNRESET) => return Ok(None),
            Err(Errno::WOULDBLOCK) if flags.contains(RecvFlags::DONTWAIT) => return Ok(None),
            received => received?,
        };
        let messages = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fds: Vec<OwnedFd> = messages.flatten().collect();
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::from(ErrorKind::FileTooLarge));
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        let message = serde_json::from_slice(&bytes[..received.bytes])?;
        Ok(Some((message, fds)))
    }
}

impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Channel {
        Channel(fd)
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> OwnedFd {
        channel.0
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    #[test]
    fn message_and_descriptors_arrive_together_and_hang_up_is_an_end() {
        let (one, other) = Channel::pair().unwrap();
        let mut file = File::from(rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(b"inside").unwrap();
        one.send(&(7, "seven"), &[file.as_fd()]).unwrap();
        let (message, fds): ((u32, String), _) = other.receive().unwrap().unwrap();
        assert_eq!(message, (7, "seven".to_owned()));
        let mut copy = File::from(fds.into_iter().next().unwrap());
        copy.rewind().unwrap();
        let mut text = String::new();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
        drop(one);
        assert!(other.receive::<u32>().unwrap().is_none());
    }

    #[test]
    fn message_of_another_kind_or_too_long_is_an_error() {
        let (one, other) = Channel::pair().unwrap();
        one.send(&"text", &[]).unwrap();
        assert!(other.receive::<u32>().is_err());
        let long = "x".repeat(MESSAGE_BYTES_MAX);
        assert_eq!(one.send(&long, &[]).unwrap_err().kind(), ErrorKind::FileTooLarge);
        rustix::net::send(&one, &vec![b' '; MESSAGE_BYTES_MAX + 1], SendFlags::empty()).unwrap();
        assert_eq!(other.receive::<u32>().unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}
