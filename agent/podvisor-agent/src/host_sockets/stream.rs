//! One connection of a program to a socket of the node: a stream to the host with the socket's token first,
//! and then bytes both ways. Each side's half-close is passed on. A program's credentials and descriptors
//! stay in the guest: they mean nothing to another kernel.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proto_agent::{HOST_SOCKET_TOKEN_BYTES, port};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio_vsock::{VMADDR_CID_HOST, VsockAddr, VsockStream};

use super::pace::Pace;

/// Timeout for the VMM's answer to a dial.
const DIAL: Duration = Duration::from_secs(10);

/// Secret of a container's socket. It identifies the socket to the host.
#[derive(Clone, Copy)]
pub(super) struct Token([u8; HOST_SOCKET_TOKEN_BYTES]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl TryFrom<&[u8]> for Token {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Token, Self::Error> {
        bytes.try_into().map(Token)
    }
}

/// Carries a program's connection until it ends. If the host refuses the stream, the program's connection is
/// closed.
pub(super) async fn carry(program: UnixStream, token: &Token, pace: &Pace) {
    let Some(_place) = pace.take().await else { return };
    if let Err(error) = dial_and_carry(program, token).await {
        failed(&error);
    }
}

async fn dial_and_carry(program: UnixStream, token: &Token) -> io::Result<()> {
    let dialling = VsockStream::connect(VsockAddr::new(VMADDR_CID_HOST, port::HOST_SOCKET));
    let mut host = tokio::time::timeout(DIAL, dialling).await??;
    host.write_all(&token.0).await?;
    runtime_ways::carry_for(program, host).await
}

/// Logs the first failed connection. Programs control how often this happens, and each line is an exit to the
/// VMM.
fn failed(error: &io::Error) {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    if !LOGGED.swap(true, Ordering::Relaxed) {
        tracing::warn!(%error, "a connection to a socket of the node failed, the first one");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_another_length_is_none() {
        assert!(Token::try_from([0; 31].as_slice()).is_err() && Token::try_from([0; 33].as_slice()).is_err());
        assert_eq!(format!("{:?}", Token::try_from([7; 32].as_slice()).unwrap()), "Token");
    }
}
