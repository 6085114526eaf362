//! `podvisor console`: prints a guest's console. The file is read where the VMM writes it, or where it is
//! kept afterwards. No daemon is asked: it may be down or hang when a console is needed.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use proto_vmm::{console_of, cut_line, printable};
use runtime_pod::PodLogs;

use crate::complete;
use crate::config::Config;
use crate::run::place;
use crate::show::out;

/// The interval between two reads of the file.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `podvisor console`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Go on until the pod is stopped.
    #[arg(short, long)]
    follow: bool,
    /// The pod's id, or its beginning, or its name, or NAMESPACE/NAME. Of a removed pod, the kept part is
    /// printed.
    #[arg(add = complete::pods())]
    pod: String,
}

/// Prints the console.
pub(crate) async fn console(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let logs = PodLogs::find(&place::all(config), &args.pod)?;
    if logs.removed {
        out::complain(format_args!("pod {} ({}) was removed; its kept console follows", logs.pod, logs.name));
    }
    let mut printed = 0;
    loop {
        let Some(console) = logs.console() else {
            bail!("of pod {} ({}) no console is kept: its VM has never started", logs.pod, logs.name);
        };
        match std::fs::read(&console.path) {
            Ok(content) => {
                let mut stdout = std::io::stdout().lock();
                printed = print(&content, printed, &mut stdout).map_err(out::failed)?;
            }
            // The pod was stopped in between. Its file is now where consoles are kept.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && console.growing => continue,
            Err(error) => return Err(error).with_context(|| console.path.display().to_string()),
        }
        if !args.follow || !console.growing {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Prints the content behind the console's first `printed` bytes, and returns the new number of printed
/// bytes.
fn print(content: &[u8], printed: u64, to: &mut impl Write) -> std::io::Result<u64> {
    let (cut, rest) = console_of(content);
    let end = cut + rest.len() as u64;
    if end <= printed {
        // Nothing new, or a file about to start over.
        return Ok(printed);
    }
    if cut > printed {
        to.write_all(cut_line(cut - printed).as_bytes())?;
    }
    let known = usize::try_from(printed.saturating_sub(cut)).unwrap_or(usize::MAX);
    let new: Vec<u8> = rest.iter().skip(known).copied().map(printable).collect();
    to.write_all(&new)?;
    to.flush()?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_begins_anew_is_followed_without_a_gap_or_a_repetition() {
        let mut out = Vec::new();
        let mut printed = 0;
        for content in [
            "one\n",
            "one\ntwo\n",
            // While it starts over.
            "",
            "[podvisor: 4 by",
            "[podvisor: 4 bytes before this are cut off]\ntwo\nthree\x1b\n",
        ] {
            printed = print(content.as_bytes(), printed, &mut out).unwrap();
        }
        assert_eq!(String::from_utf8(out).unwrap(), "one\ntwo\nthree?\n");
        assert_eq!(printed, 15);
    }

    #[test]
    fn bytes_that_nobody_can_see_any_more_are_counted() {
        let mut out = Vec::new();
        let content = cut_line(100) + "end\n";
        assert_eq!(print(content.as_bytes(), 40, &mut out).unwrap(), 104);
        assert_eq!(String::from_utf8(out).unwrap(), "[podvisor: 60 bytes before this are cut off]\nend\n");
    }
}
