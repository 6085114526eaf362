//! `podvisor rmi`: removes images, each whatever becomes of the others. An image that a VM uses stays on the disk until no VM does.

use std::process::ExitCode;

use proto_cri::v1;

use super::rows::short_id;
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::exit;
use crate::show::{escape, out};

/// Arguments of `podvisor rmi`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An image's name, with a tag or a digest, or its id, or 12 letters or more of the id's beginning. An image is removed with
    /// all its names.
    #[arg(required = true, value_name = "NAME|ID")]
    names: Vec<String>,
}

/// Removes the images, and says on standard error which of them were not there.
pub(crate) async fn remove(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let mut code = ExitCode::SUCCESS;
    for name in &args.names {
        let failure = match remove_one(&daemon, name).await {
            Ok(Some(image)) => {
                out::print(&line(&image))?;
                continue;
            }
            Ok(None) => format!("image {name} is not on this node"),
            // Nobody answers the next question either.
            Err(late @ DaemonError::Late { .. }) => return Err(late.into()),
            Err(error) => format!("image {name}: {error}"),
        };
        eprintln!("podvisor: {}", escape::line(&failure));
        code = ExitCode::from(exit::PODVISOR_FAILED);
    }
    Ok(code)
}

/// Returns the image that was removed; none where there was none.
async fn remove_one(daemon: &Daemon, name: &str) -> Result<Option<v1::Image>, DaemonError> {
    // CRI takes a removal of what is not there for done. The name, and not the id: another runtime may have it for another image.
    let Some(image) = daemon.image_status(name).await?.image else { return Ok(None) };
    daemon.remove_image(name).await?;
    Ok(Some(image))
}

fn line(image: &v1::Image) -> String {
    let names = [&image.repo_tags[..], &image.repo_digests].concat().join(", ");
    let of = if names.is_empty() { String::new() } else { format!(": {names}") };
    escape::line(&format!("removed {}{of}", short_id(&image.id))).into_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_names_all_names_that_are_gone() {
        let mut image = v1::Image { id: format!("sha256:{}", "a".repeat(64)), ..Default::default() };
        assert_eq!(line(&image), "removed aaaaaaaaaaaa\n");
        image.repo_tags = vec!["r/a:1".into(), "r/a:\x1b".into()];
        image.repo_digests = vec!["r/a@sha256:1".into()];
        assert_eq!(line(&image), "removed aaaaaaaaaaaa: r/a:1, r/a:\\u{1b}, r/a@sha256:1\n");
    }
}
