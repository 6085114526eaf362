//! The connection for calls to one agent. After a connection breaks, the next call makes a new one: a guest
//! that is slow for a while loses calls but stays reachable.
//!
//! Running calls stay on the connection where they began.

use std::path::{Path, PathBuf};

use proto_agent::agent_ttrpc::AgentClient;
use proto_agent::port;
use tokio::sync::Mutex;
use ttrpc::asynchronous::Client;
use ttrpc::asynchronous::transport::Socket;

use crate::answers::Answers;
use crate::connect::dial;
use crate::error::GuestError;

/// The connection to the agent behind a VMM's vsock socket.
pub(crate) struct Link {
    socket: PathBuf,
    current: Mutex<Current>,
}

/// The connection for new calls, and the number of earlier ones.
#[derive(Default)]
struct Current {
    client: Option<AgentClient>,
    number: u64,
}

impl Link {
    pub(crate) fn new(socket: &Path) -> Link {
        Link { socket: socket.to_owned(), current: Mutex::default() }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The connection, with its number. It is made if there is none; others wait for it meanwhile.
    pub(crate) async fn client(&self, method: &'static str) -> Result<(u64, AgentClient), GuestError> {
        let mut current = self.current.lock().await;
        if let Some(client) = &current.client {
            return Ok((current.number, client.clone()));
        }
        let stream = dial(method, &self.socket, port::RPC).await?;
        let client = AgentClient::new(Client::new(Socket::new(Answers::new(stream))));
        current.number += 1;
        current.client = Some(client.clone());
        Ok((current.number, client))
    }

    /// Has the next call make a connection of its own.
    pub(crate) async fn give_up(&self) {
        self.current.lock().await.client = None;
    }

    /// Runs a call on the connection. If the call does not get through, later calls use a new connection.
    pub(crate) async fn call<T>(
        &self,
        method: &'static str,
        call: impl AsyncFnOnce(AgentClient) -> ttrpc::Result<T>,
    ) -> Result<T, GuestError> {
        let (number, client) = self.client(method).await?;
        let answer = call(client).await.map_err(|error| GuestError::from_ttrpc(method, error));
        if let Err(GuestError::Unreachable { .. }) = answer {
            let mut current = self.current.lock().await;
            // Another call may have made the next one already.
            if current.number == number {
                current.client = None;
            }
        }
        answer
    }
}
