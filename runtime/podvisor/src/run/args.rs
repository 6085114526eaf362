//! The arguments of `podvisor run`, and the syntax of memory sizes.

use crate::session::Trust;

/// Arguments of `podvisor run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pass standard input to the container.
    #[arg(short, long)]
    pub(super) interactive: bool,
    /// Give the container a terminal. With -i, ctrl-p ctrl-q leaves it, if the daemon is not private.
    #[arg(short, long)]
    pub(super) tty: bool,
    /// Remove pod and container when the container has ended. With a private daemon this always happens.
    #[arg(long)]
    pub(super) rm: bool,
    /// Number of vCPUs for the container.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(super) cpus: Option<u8>,
    /// Memory limit of the container, in MiB, or with a suffix k, m or g.
    #[arg(long, value_name = "M", value_parser = parse_memory)]
    pub(super) memory: Option<i64>,
    /// Runtime handler. By default the daemon's default handler.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(super) handler: String,
    #[command(flatten)]
    pub(super) trust: Trust,
    /// Image to run.
    pub(super) image: String,
    /// Command and arguments in place of the image's.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) command: Vec<String>,
}

/// Parses a size such as `64`, `64m` or `1g` into bytes; a bare number is MiB.
pub(crate) fn parse_memory(text: &str) -> Result<i64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "k" | "kb" | "ki" => 10,
        "" | "m" | "mb" | "mi" => 20,
        "g" | "gb" | "gi" => 30,
        _ => return Err("a size is a number with k, m or g".into()),
    };
    let number: i64 = digits.parse().map_err(|_| "a size is a number with k, m or g".to_owned())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(|| "out of range".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_suffix() {
        assert_eq!(parse_memory("128"), Ok(128 << 20));
        assert_eq!(parse_memory("64k"), Ok(64 << 10));
        assert_eq!(parse_memory("2Gi"), Ok(2 << 30));
        assert!(parse_memory("").is_err() && parse_memory("0").is_err() && parse_memory("5x").is_err());
        assert!(parse_memory("9999999999999g").is_err());
    }
}
