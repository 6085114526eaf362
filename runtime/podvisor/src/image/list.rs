//! `podvisor images`: the node's images in one table, including those of the runtime behind the daemon.

use std::process::ExitCode;

use proto_cri::v1;
use serde_json::{Value, json};

use super::rows;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::show::{Form, FormArg, json as text, out, table};
use crate::terminal;

/// Arguments of `podvisor images`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also show the digests in registries.
    #[arg(long)]
    digests: bool,
    #[command(flatten)]
    form: FormArg,
}

/// Prints the table.
pub(crate) async fn list(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let mut images = daemon.images().await?;
    rows::sort(&mut images);
    match args.form.form {
        Form::Json => out::print(&text::pretty(&images.iter().map(object).collect::<Vec<_>>())?)?,
        Form::Text => {
            let width = terminal::size().map(|(columns, _)| usize::from(columns));
            let columns = rows::columns(args.digests);
            let lines = table::render(&columns, &rows::rows(&images, args.digests), width).into_iter();
            out::print(&lines.map(|line| line + "\n").collect::<String>())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An image for programs. Digests are always there.
fn object(image: &v1::Image) -> Value {
    json!({
        "id": image.id,
        "repoTags": image.repo_tags,
        "repoDigests": image.repo_digests,
        "sizeBytes": image.size,
        "pinned": image.pinned,
    })
}
