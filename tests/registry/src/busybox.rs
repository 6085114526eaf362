//! A runnable image: a static busybox, by default Debian's, and the files needed by programs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::layer::Layer;

const BUSYBOX: &str = "/bin/busybox";

const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
";

const GROUP: &str = "\
root:x:0:
daemon:x:1:
tty:x:5:
www-data:x:33:
users:x:100:
nogroup:x:65534:
";

/// Makes an image of the busybox from Debian's package, like [`busybox_image_of`].
///
/// # Errors
/// If `/bin/busybox` (package `busybox-static`) is not there.
pub fn busybox_image() -> Result<(Vec<Layer>, Value)> {
    busybox_image_of(Path::new(BUSYBOX)).context("package busybox-static")
}

/// One layer with busybox under all its names (hard links, so a mount over one does not hide the others), and
/// the config to run its shell.
///
/// # Errors
/// If the program is not there, or is no busybox.
pub fn busybox_image_of(program: &Path) -> Result<(Vec<Layer>, Value)> {
    let shown = program.display();
    let busybox = std::fs::read(program).with_context(|| format!("reading {shown}"))?;
    let listed = Command::new(program).arg("--list-full").output().context("listing busybox's names")?;
    ensure!(listed.status.success(), "{shown} --list-full failed");
    let mut layer = Layer::builder();
    for directory in [
        "bin", "dev", "etc", "home", "mnt", "proc", "run", "sbin", "sys", "usr", "usr/bin", "usr/sbin",
        "var", "var/log", "var/run",
    ] {
        layer = layer.dir(directory, 0o755);
    }
    layer = layer.dir("root", 0o700).dir("tmp", 0o1777).dir("var/tmp", 0o1777);
    layer = layer.owner(33, 33).dir("var/www", 0o755).owner(0, 0);
    layer = layer.file("bin/busybox", 0o755, busybox);
    let names = String::from_utf8(listed.stdout)?;
    for name in names.lines().filter(|name| *name != "bin/busybox" && *name != "linuxrc") {
        layer = layer.hard_link(name, 0o755, "bin/busybox");
    }
    layer = layer.file("etc/passwd", 0o644, PASSWD).file("etc/group", 0o644, GROUP);
    let config = json!({
        "Cmd": ["sh"],
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
    });
    Ok((vec![layer.build()], config))
}
