//! `podvisor image inspect`: prints the daemon's information about images, as pages or as JSON.

use std::process::ExitCode;

use anyhow::bail;
use proto_cri::v1;

use crate::complete;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::show::entries::{Entries, info};
use crate::show::{FormArg, answers};

/// Arguments of `podvisor image inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    form: FormArg,
    /// An image's name with a tag or a digest, or its id, or the first 12 or more letters of its id.
    #[arg(required = true, value_name = "NAME|ID", add = complete::images())]
    names: Vec<String>,
}

/// Prints all named images, or none if one of them is missing.
pub(crate) async fn inspect(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let mut answers = Vec::new();
    for name in &args.names {
        let answer = daemon.image_status(name).await?;
        let Some(image) = answer.image else { bail!("image {name} is not on this node") };
        answers.push(entries(image, answer.info));
    }
    answers::print(answers, args.form.form)?;
    Ok(ExitCode::SUCCESS)
}

fn entries(image: v1::Image, of: std::collections::BTreeMap<String, String>) -> Entries {
    Entries::default()
        .with("kind", "image")
        .with("id", image.id)
        .with("repoTags", image.repo_tags)
        .with("repoDigests", image.repo_digests)
        .with("sizeBytes", image.size)
        .with("pinned", image.pinned)
        .with("uid", image.uid.map(|uid| uid.value))
        .with("username", image.username)
        .with("info", info(of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::page;

    #[test]
    fn a_page_has_the_names_the_size_with_its_unit_and_the_config() {
        let image = v1::Image {
            id: "sha256:aa".into(),
            repo_tags: vec!["r/a:1".into(), "r/a:2".into()],
            size: 2 << 20,
            uid: Some(v1::Int64Value { value: 7 }),
            ..Default::default()
        };
        let of = [("info".to_owned(), r#"{"config":{"cmd":["sh\u001b"]}}"#.to_owned())].into();
        let page = page::render(entries(image, of).iter());
        for line in [
            "kind: image\n",
            "repoTags: r/a:1, r/a:2\n",
            "sizeBytes: 2097152 (2.0MiB)\n",
            "pinned: false\n",
            "uid: 7\n",
            "    cmd: sh\\u{1b}\n",
        ] {
            assert!(page.contains(line), "{line:?}: {page}");
        }
        assert!(!page.contains("repoDigests") && !page.contains("username"), "{page}");
    }
}
