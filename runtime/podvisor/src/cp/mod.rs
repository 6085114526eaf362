//! `podvisor cp`: copies files between this host and a container, as `docker cp` does. `tar` in the
//! container carries them, as with `kubectl cp`.
//!
//! ```text
//!   out:  tar -c in the container ──► session ──► pipe ──► unpack.rs, on a thread
//!   in:   pack.rs, on a thread ──► pipe ──► session ──► tar -x in the container
//! ```
//! The container may be hostile. Its archive is checked here (`unpack.rs`).

mod command;
mod pack;
mod place;
mod plan;
mod unpack;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow, bail, ensure};

use self::command::Container;
use self::place::{End, Here, Inside, Place};
use self::plan::Found;
use self::unpack::Target;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::resolve;
use crate::session::Trust;
use crate::show::out::ReaderGone;

/// Arguments of `podvisor cp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trust: Trust,
    /// A path, or CONTAINER:PATH, or - for a tar archive from standard input. A directory that ends in /.
    /// means its contents.
    #[arg(value_name = "SOURCE", allow_hyphen_values = true)]
    source: String,
    /// A path, or CONTAINER:PATH, or - for a tar archive to standard output.
    #[arg(value_name = "DESTINATION", allow_hyphen_values = true)]
    destination: String,
}

/// Copies from the source to the destination.
pub(crate) async fn cp(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let trust = &args.trust;
    match (Place::of(&args.source), Place::of(&args.destination)) {
        (Place::Container(name, source), Place::Here(destination)) => {
            let container = container(config, &name, trust).await?;
            match destination {
                Here::Stream => stream_out(&container, &source).await?,
                Here::Path(destination) => copy_out(&container, &source, &destination).await?,
            }
        }
        (Place::Here(source), Place::Container(name, destination)) => {
            let container = container(config, &name, trust).await?;
            match source {
                Here::Stream => {
                    let stdin = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
                    container.unpack(&destination.path, stdin).await?;
                }
                Here::Path(source) => copy_in(&container, &source, &args.source, &destination).await?,
            }
        }
        (Place::Container(..), Place::Container(..)) => {
            bail!("cp copies between a container and this host, not between two containers")
        }
        (Place::Here(_), Place::Here(_)) => {
            bail!("neither {} nor {} names a container: write CONTAINER:PATH", args.source, args.destination)
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The running container with this name.
async fn container<'a>(config: &Config, name: &str, trust: &'a Trust) -> anyhow::Result<Container<'a>> {
    let daemon = Daemon::dial(config).await?;
    let id = resolve::container(&daemon, name).await?;
    Ok(Container { client: daemon.client, id, trust })
}

async fn stream_out(container: &Container<'_>, source: &Inside) -> anyhow::Result<()> {
    ensure!(!io::stdout().is_terminal(), "standard output is a terminal, and no place for an archive");
    let (directory, name) = match source.end {
        End::Contents => (&*source.path, "."),
        _ => source.split(),
    };
    container.archive(directory, name, Box::new(io::stdout())).await
}

async fn copy_out(container: &Container<'_>, source: &Inside, destination: &Path) -> anyhow::Result<()> {
    // A link to a directory is copied as a link, unless the path says that its directory is meant.
    let is_link = source.end == End::Name && container.test("-h", &source.path).await?;
    let is_directory = !is_link && container.test("-d", &source.path).await?;
    let found = found(destination);
    let plan = plan::out(source, is_directory, destination, found)?;
    if found == Found::Absent && plan.rename.is_none() {
        fs::create_dir(&plan.into).with_context(|| plan.into.display().to_string())?;
    }
    let (reader, writer) = io::pipe()?;
    let (into, name, rename) = (plan.into, plan.name.to_owned(), plan.rename);
    let unpacking = thread::spawn(move || {
        unpack::unpack(reader, &Target { into: &into, name: &name, rename: rename.as_deref() })
    });
    let sent = container.archive(plan.directory, plan.name, Box::new(writer)).await;
    match (joined(unpacking), sent) {
        (Err(here), Err(there)) => Err(if has_no_reader(&there) { here } else { there }),
        (unpacked, sent) => unpacked.and(sent),
    }
}

async fn copy_in(
    container: &Container<'_>,
    source: &Path,
    argument: &str,
    destination: &Inside,
) -> anyhow::Result<()> {
    // `/` and `..` have no name.
    let name = source.file_name().map(|name| name.to_str().context("the name is no UTF-8")).transpose();
    let name = name.with_context(|| argument.to_owned())?;
    let end = if name.is_none() { End::Contents } else { End::of(argument) };
    let metadata = if end == End::Name { source.symlink_metadata() } else { source.metadata() };
    let is_directory = metadata.with_context(|| argument.to_owned())?.is_dir();
    let found = if container.test("-d", &destination.path).await? {
        Found::Directory
    } else if container.test("-e", &destination.path).await? {
        Found::Other
    } else {
        Found::Absent
    };
    let plan = plan::into((name.unwrap_or("."), end, is_directory), destination, found)?;
    let (reader, writer) = io::pipe()?;
    let (source, name) = (source.to_owned(), plan.name.to_owned());
    let packing = thread::spawn(move || pack::pack(&source, &name, writer).map_err(anyhow::Error::from));
    let taken = container.unpack(plan.directory, reader.into()).await;
    match joined(packing) {
        Err(here) if !has_no_reader(&here) => Err(here),
        _ => taken,
    }
}

/// What a path of this host leads to. A link to nothing is something.
fn found(path: &Path) -> Found {
    match fs::metadata(path).or_else(|_| fs::symlink_metadata(path)) {
        Ok(metadata) if metadata.is_dir() => Found::Directory,
        Ok(_) => Found::Other,
        Err(_) => Found::Absent,
    }
}

/// Whether a writer failed because its reader had ended. The reader has the reason.
fn has_no_reader(error: &anyhow::Error) -> bool {
    let of = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.is::<ReaderGone>() || error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(of))
}

fn joined(thread: JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("the thread for the archive ended early")))
}
