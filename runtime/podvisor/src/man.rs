//! `podvisor man`: writes the manual pages, for packages. Pages of commands come from the definitions of the
//! argument parser, and the configuration's page from the table of its keys. So the pages are complete. It
//! reads nothing from the node.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::config::page;

/// The left foot of every page.
const SOURCE: &str = concat!("Podvisor ", env!("CARGO_PKG_VERSION"));
/// The head of every page.
const MANUAL: &str = "Podvisor";

/// Name of the pages of commands: section 1 of the manual.
const COMMANDS: &str = "1";

/// Arguments of `podvisor man`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Root of the manual, with a directory for each section. Missing directories are created.
    #[arg(long, value_name = "DIRECTORY")]
    to: PathBuf,
}

/// A manual page, as groff reads it.
#[derive(Debug)]
struct Page {
    /// Name of the page's file: its title and its section.
    file: String,
    text: Vec<u8>,
}

impl Page {
    /// The directory of the page's section, as `man1`.
    fn directory(&self) -> String {
        format!("man{}", self.file.rsplit('.').next().unwrap_or(COMMANDS))
    }
}

/// Writes all pages of the program defined by `command`.
pub(crate) fn write(args: &Args, command: Command) -> anyhow::Result<ExitCode> {
    for page in pages(command)? {
        let section = args.to.join(page.directory());
        fs::create_dir_all(&section).with_context(|| format!("making {}", section.display()))?;
        let path = section.join(page.file);
        fs::write(&path, page.text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn pages(command: Command) -> io::Result<Vec<Page>> {
    let mut command = command.disable_help_subcommand(true);
    // Sets the full name of each subcommand, and its global options.
    command.build();
    let mut pages = Vec::new();
    add(&mut pages, &command)?;
    pages.push(Page { file: "podvisor-vmm.1".into(), text: vmm().to_roff().into() });
    let mut configuration = titled("podvisor-config.toml", "5");
    page::add_to(&mut configuration);
    pages.push(Page { file: "podvisor-config.toml.5".into(), text: configuration.to_roff().into() });
    Ok(pages)
}

/// Adds the pages of a command and of its subcommands.
fn add(pages: &mut Vec<Page>, command: &Command) -> io::Result<()> {
    let man = Man::new(command.clone()).section(COMMANDS).source(SOURCE).manual(MANUAL);
    let file = man.get_filename();
    let mut text = Vec::new();
    man.render(&mut text)?;
    see_also(&file).to_writer(&mut text)?;
    pages.push(Page { file, text });
    command.get_subcommands().filter(|command| !command.is_hide_set()).try_for_each(|below| add(pages, below))
}

/// The last section: links to the program's page (except on that page) and to the configuration's.
fn see_also(file: &str) -> Roff {
    let others = if file == "podvisor.1" { "podvisor-vmm(1)" } else { "podvisor(1)" };
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text([roman(format!("{others}, podvisor-config.toml(5)"))]);
    roff
}

/// A page with nothing but its title. The third field, a date, would differ from build to build.
fn titled(name: &str, section: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("TH", [name, section, "", SOURCE, MANUAL]);
    roff
}

/// The page of the VMM. The VMM takes no arguments.
fn vmm() -> Roff {
    let mut roff = titled("podvisor-vmm", COMMANDS);
    roff.control("SH", ["NAME"]).text([roman("podvisor-vmm - run the VM of one pod")]);
    roff.control("SH", ["DESCRIPTION"]).text([roman(
        "podvisor-vmm is started by podvisor serve, once for each pod, and takes no arguments. Its standard input is the \
         listening socket for the daemon to control it. Its standard output is the file of the guest's console, and its \
         standard error is its log, below paths.state (podvisor-config.toml(5)). The process gives up its rights before the \
         guest runs, and goes on when the daemon ends.",
    )]);
    roff.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in [
        ("0", "The VM ended because the daemon asked for it."),
        ("1", "There never was a VM; the log says why."),
        ("2", "The VM ended otherwise; the log says how."),
    ] {
        roff.control("TP", []).text([roman(status)]).text([roman(meaning)]);
    }
    roff.control("SH", ["SEE ALSO"]).text([roman("podvisor(1), podvisor-config.toml(5)")]);
    roff
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// Full names of the visible commands, as `podvisor-config-example`.
    fn names(command: &Command, name: &str, found: &mut BTreeSet<String>) {
        found.insert(name.to_owned());
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            names(below, &format!("{name}-{}", below.get_name()), found);
        }
    }

    #[test]
    fn every_command_has_a_page_of_its_own_and_no_other_has() {
        let mut expected = BTreeSet::new();
        names(&Cli::command(), "podvisor", &mut expected);
        expected.insert("podvisor-vmm".into());
        let mut expected: BTreeSet<String> = expected.iter().map(|name| format!("{name}.1")).collect();
        expected.insert("podvisor-config.toml.5".into());
        let files: Vec<String> = pages(Cli::command()).unwrap().into_iter().map(|page| page.file).collect();
        assert_eq!(files.len(), expected.len(), "{files:?}");
        assert_eq!(files.into_iter().collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn a_page_has_the_options_of_its_command_and_says_where_to_read_on() {
        let pages = pages(Cli::command()).unwrap();
        let page = pages.iter().find(|page| page.file == "podvisor-run.1").unwrap();
        let text = String::from_utf8(page.text.clone()).unwrap();
        for part in ["\\-\\-memory", "\\-\\-config", "podvisor\\-config.toml(5)", "podvisor(1)"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("\\-\\-private"));
    }

    #[test]
    fn pages_are_written_into_directories_of_their_sections() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("share/man");
        write(&Args { to: to.clone() }, Cli::command()).unwrap();
        let count = |section: &str| fs::read_dir(to.join(section)).unwrap().count();
        assert_eq!((count("man1"), count("man5")), (pages(Cli::command()).unwrap().len() - 1, 1));
        let refused = write(&Args { to: to.join("man1/podvisor.1") }, Cli::command()).unwrap_err();
        assert!(format!("{refused:#}").contains("podvisor.1"), "{refused:#}");
    }
}
