//! Attach: connects a client to a running container's input, and to its output from now on. Any number of
//! clients may attach. When one leaves, nothing happens to the container.

use runtime_logs::LogStream;

use crate::error::{PodError, PodErrorKind};
use crate::io::streams::{ContainerEnd, ProcessEnd, ProcessInput, ProcessOutput, ProcessStreams, Source};
use crate::live::Live;
use crate::roster::ContainerEntry;

/// The streams requested by a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttachRequest {
    /// The container's input, if it has one. Without one it is an error only if nothing else is asked for.
    pub stdin: bool,
    /// The container's stdout.
    pub stdout: bool,
    /// The container's stderr; a terminal has none of its own.
    pub stderr: bool,
}

pub(crate) async fn attach(
    live: &Live,
    container: &ContainerEntry,
    request: AttachRequest,
) -> Result<ProcessStreams, PodError> {
    let spec = &container.view.spec;
    let stdin = request.stdin && spec.stdin;
    if request.stdin && !stdin && !request.stdout && !request.stderr {
        let text = format!("stdin: container {} was created without one", container.view.id);
        return Err(PodError::new(PodErrorKind::InvalidArgument, text));
    }
    let follow = |wanted: bool, stream| {
        let follower = wanted.then(|| container.output.followers.of(stream).follow()).transpose();
        follower.map(|follower| follower.map(|follower| ProcessOutput(Source::Followed(follower))))
    };
    // Before the input, so the client sees the effects of its input.
    let stdout = follow(request.stdout, LogStream::Stdout)?;
    let stderr = follow(request.stderr && !spec.tty, LogStream::Stderr)?;
    let input = if stdin || spec.tty {
        let opening = live.agent.input(&container.view.id, "");
        let input = live.call("opening the container's input", opening).await?;
        // A terminal outlives its clients: an end would be typed into the shell.
        Some(ProcessInput { input, ends: stdin && spec.stdin_once && !spec.tty })
    } else {
        None
    };
    let end = ProcessEnd::Container(ContainerEnd(container.ended.clone()));
    Ok(ProcessStreams { input, stdout, stderr, end })
}
