//! MicroK8s, whose kubelet is inside its process `kubelite`. That gets the kubelet's arguments from a file of
//! the snap (microk8s, `microk8s-resources/wrappers/run-kubelite-with-args`). Its kubelet is switched by
//! hand, so this module only reads.

use std::path::PathBuf;

use crate::kubelet_command::flag;
use crate::processes::{self, ProcessesError};
use crate::root::HostRoot;

/// The process with the kubelet.
const PROCESS: &str = "kubelite";

/// Its argument with the file of the kubelet's.
const FILE_FLAG: &str = "--kubelet-args-file";

/// The usual file.
const FILE: &str = "/var/snap/microk8s/current/args/kubelet";

/// The snap's variables in that file (snapcraft.io, "Environment variables").
const VARIABLES: [(&str, &str); 2] =
    [("SNAP_COMMON", "/var/snap/microk8s/common"), ("SNAP_DATA", "/var/snap/microk8s/current")];

/// A file of arguments has a few dozen lines.
const BYTES_MAX: u64 = 1 << 20;

/// The arguments of the kubelet that runs inside MicroK8s; `None` if MicroK8s does not run.
pub(crate) fn kubelet_arguments(root: &HostRoot) -> Result<Option<Vec<String>>, ProcessesError> {
    let Some(kubelite) = processes::of_node(root, PROCESS)?.into_iter().next() else { return Ok(None) };
    let file = flag(&kubelite.arguments, FILE_FLAG).map_or_else(|| FILE.into(), PathBuf::from);
    let text = root.read(&file, BYTES_MAX)?.unwrap_or_default();
    Ok(Some(read(&text)))
}

/// The arguments in a file's text.
fn read(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = lines.flat_map(str::split_whitespace);
    words.map(|word| expanded(&word.replace(['\'', '"'], ""))).collect()
}

/// A word with the values of its variables.
fn expanded(word: &str) -> String {
    VARIABLES.iter().fold(word.to_owned(), |word, (name, value)| {
        word.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_snaps_variables_in_arguments_have_their_values() {
        let text = "# --x=1\n--root-dir=${SNAP_COMMON}/var/lib/kubelet\n\n--cert-dir \"$SNAP_DATA/certs\"\n";
        let root = "--root-dir=/var/snap/microk8s/common/var/lib/kubelet";
        assert_eq!(read(text), [root, "--cert-dir", "/var/snap/microk8s/current/certs"]);
    }
}
