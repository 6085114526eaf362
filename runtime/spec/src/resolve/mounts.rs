//! Mounts inside the container, all from the guest's own kernel and memory.

use oci_spec::runtime::{Mount, MountBuilder};

use super::GuestPaths;
use crate::ContainerSecurity;

pub(super) fn mounts(security: &ContainerSecurity, paths: &GuestPaths) -> Vec<Mount> {
    // Kernel settings are for privileged containers only, and in their own guest at that.
    let access = if security.privileged { "rw" } else { "ro" };
    let file_access = if security.readonly_rootfs { "ro" } else { "rw" };
    let file = ["rbind", "rprivate", "nosuid", "nodev", file_access];
    let sys = ["nosuid", "noexec", "nodev", access];
    let cgroup = ["nosuid", "noexec", "nodev", "relatime", access];
    let pts = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"];
    vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/dev/pts", "devpts", "devpts", &pts),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &sys),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &cgroup),
        mount("/dev/shm", "bind", paths.shm, &["rbind", "rprivate", "nosuid", "noexec", "nodev", "rw"]),
        mount("/etc/resolv.conf", "bind", paths.resolv_conf, &file),
        mount("/etc/hosts", "bind", paths.hosts, &file),
        mount("/etc/hostname", "bind", paths.hostname, &file),
    ]
}

fn mount(destination: &str, typ: &str, source: &str, options: &[&str]) -> Mount {
    MountBuilder::default()
        .destination(destination)
        .typ(typ)
        .source(source)
        .options(options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>())
        .build()
        .expect("all needed fields are set")
}
