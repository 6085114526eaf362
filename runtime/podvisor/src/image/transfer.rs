//! A pull or an import by the daemon, followed to its end. Shows its progress, and leaves it on an interrupt.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use proto_images::v1::{Image, Progress, State};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tonic::Streaming;

use super::bars::Bars;
use super::lines::Lines;
use crate::client::refused;
use crate::exit;
use crate::show::{escape, out};

/// How a transfer ended for this command.
#[derive(Debug)]
pub(super) enum Ended {
    /// The images are on the node.
    Done(Vec<Image>),
    /// The user interrupted the command. Has the transfer's state at that time.
    Interrupted(State),
}

/// The form in which the progress is shown.
pub(super) enum Shown {
    Not,
    /// On standard output, for programs and logs.
    Lines(Lines),
    /// On the terminal.
    Bars(Bars),
}

impl Shown {
    /// Bars on a terminal, lines elsewhere, and nothing if `quiet`. `what` is the current work.
    pub(super) fn of(quiet: bool, what: &str) -> Shown {
        match () {
            () if quiet => Shown::Not,
            () if std::io::stdout().is_terminal() && std::io::stderr().is_terminal() => {
                Shown::Bars(Bars::new(what))
            }
            () => Shown::Lines(Lines::default()),
        }
    }

    /// Bars on a terminal, and nothing elsewhere: standard output is the container's.
    pub(super) fn beside_a_container(what: &str) -> Shown {
        if std::io::stderr().is_terminal() { Shown::Bars(Bars::new(what)) } else { Shown::Not }
    }

    fn show(&mut self, progress: &Progress) {
        match self {
            Shown::Not => {}
            Shown::Bars(bars) => bars.show(progress),
            Shown::Lines(lines) => {
                let lines = lines.of(progress);
                if !lines.is_empty() {
                    out::say(lines.join("\n"));
                }
            }
        }
    }
}

/// The signals to end the command, from a user or a service manager.
#[derive(Debug)]
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Listens from now on.
    pub(super) fn listen() -> anyhow::Result<Interrupts> {
        let of = |kind| signal(kind).context("listening to signals");
        Ok(Interrupts { interrupt: of(SignalKind::interrupt())?, terminate: of(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Follows a transfer to its end, or until an interrupt.
pub(super) async fn follow(
    mut answer: Streaming<Progress>,
    mut shown: Shown,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Ended> {
    let mut last = State::Unknown;
    loop {
        let message = tokio::select! {
            message = answer.message() => message.map_err(refused)?,
            () = interrupts.next() => return Ok(Ended::Interrupted(last)),
        };
        let progress = message.context("the daemon ended its answer before the transfer")?;
        shown.show(&progress);
        last = progress.state();
        if last == State::Done {
            return Ok(Ended::Done(progress.images));
        }
    }
}

/// The exit status of an interrupted command. Prints a line about the work that goes on.
pub(super) fn interrupted(what: &str) -> ExitCode {
    out::complain(format_args!("interrupted; {}", escape::line(what)));
    ExitCode::from(exit::INTERRUPTED)
}
