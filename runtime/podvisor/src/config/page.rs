//! The configuration's manual page, podvisor-config.toml(5), rendered from the table in `keys.rs`. This
//! module never reads a configuration.

use clap_mangen::roff::{Inline, Roff, bold, roman};

use super::DEFAULT_FILE;
use super::keys::SECTIONS;
use super::reference::{default, header, occasion};

const DESCRIPTION: &str = "The file is TOML. Every key has a default, and the file may be missing. An \
     unknown key or a value of the wrong type is an error with the line number. The daemon reads the file \
     when it starts, and again after `systemctl reload podvisor` (SIGHUP). A new value takes effect after a \
     reload or after a restart, as stated for each key. Running pods go on in both cases. `podvisor config` \
     prints the values in force. `podvisor config example` prints a file with every key commented out.";

/// Adds the sections of the page.
pub(crate) fn add_to(roff: &mut Roff) {
    roff.control("SH", ["NAME"]).text([roman("podvisor-config.toml - configuration of Podvisor")]);
    roff.control("SH", ["SYNOPSIS"]).text([bold(DEFAULT_FILE)]);
    roff.control("SH", ["DESCRIPTION"]).text(inline(DESCRIPTION));
    for section in SECTIONS {
        roff.control("SH", [header(section).as_str()]).text(inline(section.text));
        for key in section.keys {
            let default = match key.unset {
                Some((example, meaning)) => format!("Unset: {meaning}. Example: `{} = {example}`.", key.name),
                None => format!("Default: `{}`.", default(section, key)),
            };
            let kind = format!(" ({})", key.kind.replace('`', ""));
            roff.control("TP", []).text([bold(key.name), roman(kind)]);
            let takes = format!("Takes effect after a {}.", occasion(key));
            roff.text(inline(key.text)).control("IP", []).text(inline(&default));
            roff.control("IP", []).text(inline(&takes));
        }
    }
    roff.control("SH", ["SEE ALSO"]).text([roman("podvisor(1), podvisor-config(1)")]);
}

/// Text with its parts between backticks in bold.
fn inline(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page without groff's escapes: those for hyphens, fonts, and points and quotes at the beginning of
    /// a line.
    fn plain() -> String {
        let mut roff = Roff::new();
        add_to(&mut roff);
        let text = roff.to_roff();
        [("\\fB", ""), ("\\fR", ""), ("\\&", ""), ("\\-", "-"), ("\\*(Aq", "'"), ("\\(aq", "'")]
            .iter()
            .fold(text, |text, (from, to)| text.replace(from, to))
    }

    #[test]
    fn every_key_is_in_the_page_with_its_meaning_and_its_default() {
        let page = plain();
        for section in SECTIONS {
            assert!(page.contains(&header(section)), "{}", section.name);
            for key in section.keys {
                assert!(page.contains(&format!("\n{} (", key.name)), "{}: {page}", key.name);
                assert!(page.contains(&key.text.replace('`', "")), "{}: {page}", key.name);
                let default = match key.unset {
                    Some((_, meaning)) => format!("Unset: {}", meaning.replace('`', "")),
                    None => format!("Default: {}", default(section, key)),
                };
                assert!(page.contains(&default), "{default}: {page}");
            }
        }
    }

    #[test]
    fn no_backtick_is_left() {
        assert!(SECTIONS.iter().all(|section| section.text.matches('`').count() % 2 == 0));
        assert!(!plain().contains('`'));
    }
}
