//! The arguments of `podvisor runtimeclass`.

use super::names;
use super::toleration::Toleration;
use crate::size as sizes;

/// Default label of the nodes for pods of the classes.
const NODE_LABEL: &str = "podvisor.io/runtime=true";

/// Largest size of pods, in bytes: that of a VM.
const SIZE_MAX: u64 = runtime_vm::MEMORY_BYTES_MAX;

/// Arguments of `podvisor runtimeclass`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the class for the smallest pods. The others have their size appended.
    #[arg(long, default_value = "podvisor", value_parser = name)]
    pub(super) name: String,
    /// Runtime handler of the classes. By default the configuration's default handler.
    #[arg(long, value_name = "NAME")]
    pub(super) handler: Option<String>,
    /// Largest memory of a class' pods, the sum of their containers' limits, such as 512m or 4g. May be
    /// repeated, for a class each. By default 512Mi, 4Gi and 32Gi, as far as the handler allows.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) up_to: Vec<u64>,
    /// Label of the nodes for pods of the classes; the scheduler uses no others. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", default_value = NODE_LABEL, value_parser = node_label)]
    pub(super) node_selector: Vec<(String, String)>,
    /// Let the scheduler send pods of the classes to any node.
    #[arg(long, conflicts_with = "node_selector")]
    pub(super) any_node: bool,
    /// Taint tolerated by pods of the classes, as kubectl writes it. May be repeated.
    #[arg(long, value_name = "KEY[=VALUE][:EFFECT]")]
    pub(super) toleration: Vec<Toleration>,
    /// Measure, and fail if measuring is not possible.
    #[arg(long, conflicts_with = "assumed")]
    pub(super) measure: bool,
    /// Do not measure. Print the daemon's own values.
    #[arg(long)]
    pub(super) assumed: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    pub(super) output: Output,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// A document for each class, with comments.
    Yaml,
    /// One list.
    Json,
}

fn name(text: &str) -> Result<String, String> {
    names::subdomain(text).map(|()| text.to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    let size = u64::try_from(sizes::parse(text)?).map_err(|_| "out of range")?;
    if (1 << 20..=SIZE_MAX).contains(&size) { Ok(size) } else { Err("a size is from 1m to 1024g".into()) }
}

fn node_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is KEY=VALUE")?;
    names::key(key)?;
    names::value(value)?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command};

    fn args(arguments: &[&str]) -> Result<Args, String> {
        let all = ["podvisor", "runtimeclass"].iter().chain(arguments);
        match Cli::try_parse_from(all).map_err(|error| error.to_string())?.command {
            Command::Runtimeclass(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nodes_are_labelled_unless_any_will_do() {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(args(&[]).unwrap().node_selector, [label("podvisor.io/runtime", "true")]);
        let given = args(&["--node-selector", "vm=yes", "--node-selector", "zone=a"]).unwrap();
        assert_eq!(given.node_selector, [label("vm", "yes"), label("zone", "a")]);
        assert!(args(&["--any-node"]).unwrap().any_node);
        assert!(args(&["--any-node", "--node-selector", "a=b"]).unwrap_err().contains("cannot be used with"));
    }

    #[test]
    fn wrong_arguments_are_refused_with_what_is_right() {
        for (arguments, why) in [
            (&["--name", "Pod_visor"][..], "lower case"),
            (&["--up-to", "0"], "out of range"),
            (&["--up-to", "512"], "1m to 1024g"),
            (&["--up-to", "512k"], "1m to 1024g"),
            (&["--up-to", "2000g"], "1m to 1024g"),
            (&["--up-to", "much"], "a number"),
            (&["--node-selector", "vm"], "KEY=VALUE"),
            (&["--node-selector", "v m=a"], "a label has"),
            (&["--toleration", "a:Soon"], "NoSchedule"),
            (&["--measure", "--assumed"], "cannot be used with"),
            (&["-o", "xml"], "yaml"),
        ] {
            let said = args(arguments).unwrap_err();
            assert!(said.contains(why), "{arguments:?}: {said}");
        }
        assert_eq!(args(&["--up-to", "4Gi", "--up-to", "512m"]).unwrap().up_to, [4 << 30, 512 << 20]);
    }
}
