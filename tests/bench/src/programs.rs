//! Programs of others, in memory with their libraries, as our own are ([`crate::staged`] says why).

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use tests_e2e::disk::in_software_node;

/// Files read by programs at their start: the paths of libraries, and the time zone for logs.
const READ_AT_START: [&str; 2] = ["/etc/ld.so.cache", "/etc/localtime"];

/// The path of an installed program.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// Copies a program into a directory in memory, and has its libraries there, too. Returns the copy's path.
pub(crate) fn stage(program: &Path, memory: &Path) -> anyhow::Result<PathBuf> {
    let copy = memory.join(program.file_name().context("a program has a name")?);
    fs::copy(program, &copy).with_context(|| format!("copying {}", program.display()))?;
    stage_libraries(&copy)?;
    Ok(copy)
}

/// Keeps the libraries of a program in memory, because the node's file tree is the host's.
pub(crate) fn stage_libraries(program: &Path) -> anyhow::Result<()> {
    if !in_software_node() {
        return Ok(());
    }
    let output = Command::new("ldd").arg(program).output().context("running ldd")?;
    let text = String::from_utf8(output.stdout)?;
    // A line has the path of a library, if it was found, and its place in the process's memory; a static
    // program has none.
    let found = text.split_whitespace().filter(|word| word.starts_with('/'));
    for file in found.chain(READ_AT_START).map(Path::new).filter(|file| file.exists()) {
        keep(file).with_context(|| format!("keeping {} in memory", file.display()))?;
    }
    Ok(())
}

/// Keeps a file in memory, with every symbolic link on the way there. A software node's file tree is an
/// overlay with its upper part in memory. Setting the mode or owner of a file or link to the same value
/// copies it there.
fn keep(path: &Path) -> io::Result<()> {
    let mut next = Some(path.to_owned());
    while let Some(path) = next.take() {
        for part in path.ancestors().filter(|part| part.is_symlink()) {
            let link = fs::symlink_metadata(part)?;
            lchown(part, Some(link.uid()), Some(link.gid()))?;
        }
        if path.is_symlink() {
            next = path
                .parent()
                .map(|parent| Ok::<_, io::Error>(parent.join(fs::read_link(&path)?)))
                .transpose()?;
        }
    }
    fs::set_permissions(path, fs::metadata(path)?.permissions())
}
