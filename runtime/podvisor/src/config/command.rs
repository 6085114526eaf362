//! `podvisor config`: prints the configuration in force with the origin of each value, or describes all keys.
//! The command changes nothing. `reference.rs` describes the keys.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;

use super::report::Report;
use super::{DEFAULT_FILE, ask, file, print, reference};
use crate::show::out;

/// Arguments of `podvisor config`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Form of the configuration in force; toml by default.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

#[derive(Clone, Copy, Debug, clap::Subcommand)]
enum What {
    /// Print a configuration file with every key, its meaning and its default, commented out.
    Example,
    /// Print the reference of all keys as Markdown.
    Reference,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    /// A configuration file with comments.
    Toml,
    /// JSON.
    Json,
}

/// Prints the requested text. A mistake in the file is an error, after the rest of the output.
pub(crate) async fn print(path: Option<&Path>, args: Args) -> anyhow::Result<ExitCode> {
    let Some(what) = args.what else { return in_force(path, args.output.unwrap_or(Output::Toml)).await };
    if args.output.is_some() {
        bail!("--output is of the configuration in force alone");
    }
    // Also here, so a mistake in the file is noticed.
    super::load(path)?;
    match what {
        What::Example => out::print(&reference::commented())?,
        What::Reference => out::print(&reference::markdown())?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn in_force(path: Option<&Path>, output: Output) -> anyhow::Result<ExitCode> {
    let loaded = file::load_file(path);
    let socket = match &loaded {
        Ok(loaded) => loaded.config.socket(),
        Err(_) => file::likely_socket(path),
    };
    let asked = ask::in_force(&socket).await.map_err(|error| format!("{error:#}"));
    // A daemon has its own environment. One started from here would have this process's.
    let loaded = if matches!(asked, Ok(Some(_))) { loaded } else { loaded.and_then(|_| super::load(path)) };
    let (loaded, wrong) = match loaded {
        Ok(loaded) => (Ok(loaded), None),
        Err(error) => {
            let error = anyhow::Error::from(error);
            let path = path.map_or_else(|| PathBuf::from(DEFAULT_FILE), Path::to_owned);
            (Err((path, format!("{error:#}"))), Some(error))
        }
    };
    let report = Report::of(loaded, asked);
    let text = match output {
        Output::Toml => print::text(&report),
        Output::Json => print::json(&report)?,
    };
    let printed = out::print(&text);
    // The exit status counts for a script that reads no further.
    wrong.map_or(printed.map(|()| ExitCode::SUCCESS), Err)
}
