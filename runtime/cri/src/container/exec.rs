//! Exec: returns a URL for a command's streams. The command starts when its client connects.

use proto_cri::v1;
use runtime_spec::ExecSpec;
use runtime_streaming::Streams;

use crate::error::Failure;
use crate::serve::Cri;
use crate::sessions::Exec;
use crate::subject;

pub(crate) async fn exec(cri: &Cri, request: v1::ExecRequest) -> Result<v1::ExecResponse, Failure> {
    let v1::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr } = request;
    subject::container(&cri.pods, &container_id);
    let streams = check(Streams { stdin, stdout, stderr, tty })?;
    if cmd.is_empty() {
        return Err(Failure::invalid("cmd is empty"));
    }
    cri.pods.check_running(&container_id)?;
    let spec = ExecSpec { command: cmd, tty, stdin };
    let session = Exec { pods: cri.pods.clone(), container_id, spec };
    Ok(v1::ExecResponse { url: cri.streaming.exec(streams, Box::new(session))? })
}

/// Checks the four fields as required by api.proto.
pub(super) fn check(streams: Streams) -> Result<Streams, Failure> {
    if streams.tty && streams.stderr {
        return Err(Failure::invalid("tty and stderr cannot both be true: a terminal has one output"));
    }
    if !(streams.stdin || streams.stdout || streams.stderr) {
        return Err(Failure::invalid("one of stdin, stdout and stderr must be true"));
    }
    Ok(streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_with_a_stderr_and_a_session_without_streams_are_refused() {
        let streams = |stdin, stdout, stderr, tty| Streams { stdin, stdout, stderr, tty };
        for bad in [streams(true, true, true, true), streams(false, false, false, true)] {
            assert!(matches!(check(bad), Err(Failure::Invalid(_))), "{bad:?}");
        }
        for good in [streams(true, true, false, true), streams(false, false, true, false)] {
            assert_eq!(check(good).unwrap(), good);
        }
    }
}
