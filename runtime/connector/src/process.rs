//! The process: drops unneeded rights, then connects on the daemon's requests until the daemon closes the
//! socket or ends the process. Standard input is the socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;

use crate::carry::{self, CONNECTIONS_MAX};
use crate::command_line::ConnectorUser;
use crate::message::{self, Answer, Question};
use crate::{filter, privileges, reactor};

/// Runs a connector as `user`, as written by the daemon. The call returns at the end of the process.
#[must_use]
pub fn run(user: &str) -> ExitCode {
    match ConnectorUser::parse(user)
        .ok_or_else(|| io::Error::other("its argument is no user"))
        .and_then(|user| serve(&user))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podvisor connector: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(user: &ConnectorUser) -> io::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    privileges::give_up(user)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let socket = reactor::watch(socket)?;
        filter::filter_this_thread().map_err(io::Error::other)?;
        answer_all(Arc::new(socket)).await
    });
    // Connections end with the process, even in the middle of a transfer.
    runtime.shutdown_background();
    outcome
}

/// Connects as asked, until the daemon has closed.
pub(crate) async fn answer_all(socket: Arc<AsyncFd<OwnedFd>>) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let mut guard = socket.readable().await?;
        match message::question(socket.get_ref()) {
            Ok(Some(question)) => {
                let Question { id, path, stream } = question;
                let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                    send(&socket, Answer { id, errno: Errno::USERS.raw_os_error() }).await?;
                    continue;
                };
                let socket = Arc::clone(&socket);
                tokio::spawn(async move {
                    let _place = place;
                    let connected = async {
                        let container = carry::container_end(stream)?;
                        carry::connect(&path).await.map(|server| (container, server))
                    };
                    let connected = connected.await;
                    let errno = connected.as_ref().err().map_or(0, errno);
                    // If the daemon does not listen, it is gone, and this process ends too.
                    let _ = send(&socket, Answer { id, errno }).await;
                    drop(socket);
                    if let Ok((container, server)) = connected {
                        // Either end may break off. The other notices by itself.
                        let _ = runtime_ways::carry_for(container, server).await;
                    }
                });
            }
            Ok(None) => return Ok(()),
            Err(Errno::AGAIN) => guard.clear_ready(),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
}

async fn send(socket: &AsyncFd<OwnedFd>, answer: Answer) -> io::Result<()> {
    loop {
        let mut guard = socket.ready(Interest::WRITABLE).await?;
        match message::answer(socket.get_ref(), answer) {
            Err(Errno::AGAIN) => guard.clear_ready(),
            sent => return Ok(sent?),
        }
    }
}
