//! `podvisor rmi`: removes images. A failure of one does not stop the others. An image in use by a VM stays
//! on the disk until no VM uses it.

use std::process::ExitCode;

use proto_cri::v1;

use crate::complete;
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::exit;
use crate::show::{escape, out, units};

/// Arguments of `podvisor rmi`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An image's name with a tag or a digest, or its id, or the first 12 or more letters of its id. An image
    /// is removed with all its names.
    #[arg(required = true, value_name = "NAME|ID", add = complete::images())]
    names: Vec<String>,
}

/// Removes the images, and lists the missing ones on standard error.
pub(crate) async fn remove(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let mut code = ExitCode::SUCCESS;
    for name in &args.names {
        let failure = match remove_one(&daemon, name).await {
            Ok(Some(image)) => {
                out::say(line(&image));
                continue;
            }
            Ok(None) => format!("image {name} is not on this node"),
            // The next call would not be answered either.
            Err(late @ DaemonError::Late { .. }) => return Err(late.into()),
            Err(error) => format!("image {name}: {error}"),
        };
        out::complain(escape::line(&failure));
        code = ExitCode::from(exit::PODVISOR_FAILED);
    }
    Ok(code)
}

/// Returns the removed image. `None` if it did not exist.
async fn remove_one(daemon: &Daemon, name: &str) -> Result<Option<v1::Image>, DaemonError> {
    // In CRI the removal of a missing image is a success. By name and not by id: in another runtime the id
    // may be of another image.
    let Some(image) = daemon.image_status(name).await?.image else { return Ok(None) };
    daemon.remove_image(name).await?;
    Ok(Some(image))
}

fn line(image: &v1::Image) -> String {
    let names = [&image.repo_tags[..], &image.repo_digests].concat().join(", ");
    let of = if names.is_empty() { String::new() } else { format!(": {names}") };
    escape::line(&format!("removed {}{of}", units::short_digest(&image.id))).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_names_all_names_that_are_gone() {
        let mut image = v1::Image { id: format!("sha256:{}", "a".repeat(64)), ..Default::default() };
        assert_eq!(line(&image), "removed aaaaaaaaaaaa");
        image.repo_tags = vec!["r/a:1".into(), "r/a:\x1b".into()];
        image.repo_digests = vec!["r/a@sha256:1".into()];
        assert_eq!(line(&image), "removed aaaaaaaaaaaa: r/a:1, r/a:\\u{1b}, r/a@sha256:1");
    }
}
