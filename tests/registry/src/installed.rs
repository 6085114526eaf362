//! Layers of files installed by Debian's packages on this host: programs with their linked libraries.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::layer::{Compression, Layer};

/// One layer with these files, each under its own path, and with the libraries of the programs among them. If
/// a file is a link on this host, the layer has its target.
///
/// # Errors
/// If a file is missing or unreadable.
pub fn installed_layer(paths: &[&str]) -> Result<Layer> {
    let mut all: BTreeSet<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    for path in paths {
        all.extend(libraries(path)?);
    }
    let mut command = Command::new("tar");
    command.args(["--create", "--dereference", "--directory=/", "--no-recursion", "--files-from=-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tar = command.spawn().context("running tar")?;
    let names = all.iter().map(|path| format!("{}\n", path.trim_start_matches('/'))).collect::<String>();
    tar.stdin.take().context("tar's input")?.write_all(names.as_bytes())?;
    let packed = tar.wait_with_output()?;
    ensure!(packed.status.success(), "tar: {}", String::from_utf8_lossy(&packed.stderr));
    Ok(Layer::from_tar(&packed.stdout, Compression::None))
}

/// Paths of a program's linked libraries, with the loader; none for another file.
fn libraries(path: &str) -> Result<Vec<String>> {
    let listed = Command::new("ldd").arg(path).output().context("running ldd")?;
    let text = String::from_utf8(listed.stdout)?;
    let path = |word: &str| word.starts_with('/').then(|| word.to_owned());
    Ok(text.lines().filter_map(|line| line.split_whitespace().find_map(path)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_its_loader_and_its_libraries_and_a_text_has_none() {
        let found = libraries("/usr/bin/tar").unwrap();
        assert!(found.iter().any(|path| path.contains("/libc.so.")), "{found:?}");
        assert!(found.iter().any(|path| path.contains("/ld-linux")), "{found:?}");
        assert!(libraries("/etc/passwd").unwrap().is_empty());
        assert!(installed_layer(&["/etc/no-such-file"]).is_err());
    }
}
