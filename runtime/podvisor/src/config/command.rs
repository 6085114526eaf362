//! `podvisor config`: prints what can be configured. The command never reads or changes the host; what the
//! keys mean is in `reference.rs`.

use super::reference;

/// Arguments of `podvisor config`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Copy, Debug, clap::Subcommand)]
enum What {
    /// Print a configuration file with every key, its meaning and its default, commented out.
    Example,
    /// Print the reference of all keys as Markdown.
    Reference,
}

/// Prints what was asked for.
pub(crate) fn print(args: Args) {
    match args.what {
        What::Example => print!("{}", reference::commented()),
        What::Reference => print!("{}", reference::markdown()),
    }
}
