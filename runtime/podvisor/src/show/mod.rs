//! Output of commands for people and programs: tables, pages, JSON, and standard output. Texts from images
//! and guests pass `escape.rs` before a terminal sees them. Tables and JSON do this themselves.

pub(crate) mod answers;
pub(crate) mod entries;
pub(crate) mod escape;
pub(crate) mod json;
pub(crate) mod out;
pub(crate) mod page;
pub(crate) mod table;
pub(crate) mod units;

/// The form of a command's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// The argument for the form.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct FormArg {
    /// Form of the output.
    #[arg(short = 'o', long = "output", value_name = "FORM", value_enum, default_value_t)]
    pub(crate) form: Form,
}
