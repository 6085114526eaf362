//! A pull or an import of the daemon's, followed to its end: shown as it goes on, and left when the command is interrupted.

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
    /// The person at the command wants no more of it; how far the transfer was.
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
    /// Bars on a terminal, lines elsewhere, and nothing where that is asked for. `what` is under way.
    pub(super) fn of(quiet: bool, what: &str) -> Shown {
        match () {
            () if quiet => Shown::Not,
            () if std::io::stdout().is_terminal() && std::io::stderr().is_terminal() => {
                Shown::Bars(Bars::new(what))
            }
            () => Shown::Lines(Lines::default()),
        }
    }

    fn show(&mut self, progress: &Progress) -> anyhow::Result<()> {
        match self {
            Shown::Not => {}
            Shown::Bars(bars) => bars.show(progress),
            Shown::Lines(lines) => {
                let lines = lines.of(progress);
                if !lines.is_empty() {
                    out::print(&(lines.join("\n") + "\n"))?;
                }
            }
        }
        Ok(())
    }
}

/// The signals by which a person or a service manager ends the command.
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
        shown.show(&progress)?;
        last = progress.state();
        if last == State::Done {
            return Ok(Ended::Done(progress.images));
        }
    }
}

/// The exit status of a command that was interrupted, after a line that says what goes on.
pub(super) fn interrupted(what: &str) -> ExitCode {
    eprintln!("podvisor: interrupted; {}", escape::line(what));
    ExitCode::from(exit::INTERRUPTED)
}
