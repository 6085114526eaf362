//! Directories, files and devices of the node in the container of `podvisor run`.

use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use proto_cri::v1;

/// Arguments for volumes and devices.
#[derive(Debug, clap::Args)]
pub(super) struct StorageArgs {
    /// Directory or file of the node, with its path in the container and options (ro, rw, rprivate, rslave,
    /// rshared). A missing directory is made. May be repeated.
    #[arg(short, long, value_name = "PATH:PATH[:OPTIONS]", value_parser = parse_volume)]
    volume: Vec<Bind>,
    /// The same as type=bind,source=PATH,target=PATH[,readonly][,bind-propagation=MODE]. A missing source is
    /// an error. May be repeated.
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = parse_mount)]
    mount: Vec<Bind>,
    /// Device of the node, with its path in the container and permissions out of rwm. May be repeated.
    #[arg(long, value_name = "PATH[:PATH][:rwm]", value_parser = parse_device)]
    device: Vec<Device>,
}

/// A path of the node in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bind {
    host: PathBuf,
    container: String,
    readonly: bool,
    relabel: bool,
    propagation: v1::MountPropagation,
    /// Whether a missing directory is made.
    made: bool,
}

/// A device of the node in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Device {
    host: String,
    container: String,
    permissions: String,
}

impl StorageArgs {
    /// The container's mounts. Makes missing directories of `--volume`.
    ///
    /// # Errors
    /// A directory cannot be made, or a source does not exist.
    pub(super) fn mounts(&self) -> anyhow::Result<Vec<v1::Mount>> {
        self.volume.iter().chain(&self.mount).map(Bind::mount).collect()
    }

    pub(super) fn devices(&self) -> Vec<v1::Device> {
        let device = |device: &Device| v1::Device {
            host_path: device.host.clone(),
            container_path: device.container.clone(),
            permissions: device.permissions.clone(),
        };
        self.device.iter().map(device).collect()
    }
}

impl Bind {
    fn mount(&self) -> anyhow::Result<v1::Mount> {
        let host = std::path::absolute(&self.host)?;
        if self.made && !host.exists() {
            std::fs::create_dir_all(&host)
                .with_context(|| format!("making the volume's directory {}", host.display()))?;
        }
        std::fs::metadata(&host).with_context(|| format!("the volume's source {}", host.display()))?;
        Ok(v1::Mount {
            host_path: host.display().to_string(),
            container_path: self.container.clone(),
            readonly: self.readonly,
            selinux_relabel: self.relabel,
            propagation: self.propagation.into(),
            ..Default::default()
        })
    }
}

fn parse_volume(text: &str) -> Result<Bind, String> {
    let mut parts = text.splitn(3, ':');
    let (Some(host), Some(container)) = (parts.next(), parts.next()) else {
        return Err(
            "a volume is PATH:PATH, of the node and in the container; there are no anonymous ones".into()
        );
    };
    if !is_path(host) {
        return Err(format!("{host:?} is no path: it begins with / or ./, and there are no named volumes"));
    }
    let mut bind = bind(host, container, true)?;
    for option in parts.next().into_iter().flat_map(|options| options.split(',')) {
        match option {
            "ro" => bind.readonly = true,
            // Hints for desktops, without an effect on Linux.
            "rw" | "nocopy" | "consistent" | "cached" | "delegated" => {}
            "z" | "Z" => bind.relabel = true,
            other => bind.propagation = propagation(other).ok_or_else(|| unknown(other))?,
        }
    }
    Ok(bind)
}

fn parse_mount(text: &str) -> Result<Bind, String> {
    let (mut host, mut container, mut kind) = (None, None, None);
    let (mut readonly, mut mode) = (false, v1::MountPropagation::PropagationPrivate);
    for field in text.split(',') {
        let (key, value) = field.split_once('=').unwrap_or((field, ""));
        match key {
            "type" => kind = Some(value),
            "source" | "src" => host = Some(value),
            "target" | "destination" | "dst" => container = Some(value),
            "readonly" | "ro" => readonly = yes(value).ok_or_else(|| unknown(field))?,
            "bind-propagation" => mode = propagation(value).ok_or_else(|| unknown(field))?,
            _ => return Err(unknown(field)),
        }
    }
    match kind {
        Some("bind") => {}
        Some(other) => return Err(format!("type={other} is not possible, only type=bind")),
        None => return Err("type=bind is missing".into()),
    }
    let host = host.filter(|host| is_path(host)).ok_or("source=PATH is missing, or it is no path")?;
    let bind = bind(host, container.ok_or("target=PATH is missing")?, false)?;
    Ok(Bind { readonly, propagation: mode, ..bind })
}

fn bind(host: &str, container: &str, made: bool) -> Result<Bind, String> {
    let lexical = Path::new(container);
    if !lexical.is_absolute() || lexical == Path::new("/") {
        return Err(format!(
            "{container:?} is no path in the container: it begins with /, and is not / itself"
        ));
    }
    if lexical.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{container:?} has .. in it"));
    }
    Ok(Bind {
        host: host.into(),
        container: container.to_owned(),
        readonly: false,
        relabel: false,
        propagation: v1::MountPropagation::PropagationPrivate,
        made,
    })
}

/// Docker takes everything else for a volume's name.
fn is_path(text: &str) -> bool {
    text.starts_with('/') || text == "." || text == ".." || text.starts_with("./") || text.starts_with("../")
}

fn propagation(text: &str) -> Option<v1::MountPropagation> {
    match text {
        "private" | "rprivate" => Some(v1::MountPropagation::PropagationPrivate),
        "slave" | "rslave" => Some(v1::MountPropagation::PropagationHostToContainer),
        "shared" | "rshared" => Some(v1::MountPropagation::PropagationBidirectional),
        _ => None,
    }
}

fn yes(text: &str) -> Option<bool> {
    match text {
        "" | "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

fn unknown(option: &str) -> String {
    format!("the option {option:?} is not known")
}

fn parse_device(text: &str) -> Result<Device, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let is_permissions = |text: &str| !text.is_empty() && text.chars().all(|c| "rwm".contains(c));
    let (host, container, permissions) = match parts[..] {
        [host] => (host, host, "rwm"),
        [host, permissions] if is_permissions(permissions) => (host, host, permissions),
        [host, container] => (host, container, "rwm"),
        [host, container, permissions] if is_permissions(permissions) => (host, container, permissions),
        [_, _, permissions] => return Err(format!("{permissions:?} are no permissions out of rwm")),
        _ => return Err("a device is PATH[:PATH][:rwm]".into()),
    };
    if !host.starts_with('/') || !container.starts_with('/') {
        return Err("the paths of a device begin with /".into());
    }
    Ok(Device { host: host.into(), container: container.into(), permissions: permissions.into() })
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;
    use super::*;

    fn mounts(arguments: &[&str]) -> Result<Vec<v1::Mount>, String> {
        parsed(arguments)?.storage.mounts().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_missing_directory_of_a_volume_is_made_and_one_of_a_mount_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let found = mounts(&["-v", &format!("{}:/data:ro,rslave", path.display()), "image"]).unwrap();
        assert!(path.is_dir());
        assert_eq!(found[0].host_path, path.to_str().unwrap());
        assert!(found[0].container_path == "/data" && found[0].readonly);
        assert_eq!(found[0].propagation(), v1::MountPropagation::PropagationHostToContainer);
        let mount = format!("type=bind,src={},dst=/data", dir.path().join("none").display());
        let said = mounts(&["--mount", &mount, "image"]).unwrap_err();
        assert!(said.contains("none") && said.contains("No such file"), "{said}");
        let mount = format!("type=bind,source={},target=/data,readonly", path.display());
        assert!(mounts(&["--mount", &mount, "image"]).unwrap()[0].readonly);
    }

    #[test]
    fn a_relative_path_is_of_the_working_directory() {
        let found = mounts(&["-v", ".:/src", "image"]).unwrap();
        assert_eq!(Path::new(&found[0].host_path), std::env::current_dir().unwrap());
    }

    #[test]
    fn what_is_no_bind_is_refused_with_the_reason() {
        for (volume, why) in [
            ("/data", "no anonymous"),
            ("data:/data", "no named volumes"),
            ("/a:b", "begins with /"),
            ("/a:/", "not / itself"),
            ("/a:/b/../..", "has .."),
            ("/a:/b:exec", "\"exec\" is not known"),
        ] {
            let said = mounts(&["-v", volume, "image"]).unwrap_err();
            assert!(said.contains(why), "{volume}: {said}");
        }
        for (mount, why) in [
            ("type=volume,dst=/a", "only type=bind"),
            ("type=tmpfs,dst=/a", "only type=bind"),
            ("src=/a,dst=/b", "type=bind is missing"),
            ("type=bind,dst=/b", "source=PATH is missing"),
            ("type=bind,src=/", "target=PATH is missing"),
            ("type=bind,src=/,dst=/b,ro=maybe", "\"ro=maybe\" is not known"),
            ("type=bind,src=/,dst=/b,size=1", "\"size=1\" is not known"),
        ] {
            let said = mounts(&["--mount", mount, "image"]).unwrap_err();
            assert!(said.contains(why), "{mount}: {said}");
        }
    }

    #[test]
    fn a_device_has_its_own_path_and_all_permissions_by_default() {
        let device = |text: &str| {
            let device = parsed(&["--device", text, "image"])?.storage.devices().remove(0);
            Ok::<_, String>([device.host_path, device.container_path, device.permissions])
        };
        assert_eq!(device("/dev/fuse").unwrap(), ["/dev/fuse", "/dev/fuse", "rwm"]);
        assert_eq!(device("/dev/fuse:r").unwrap(), ["/dev/fuse", "/dev/fuse", "r"]);
        assert_eq!(device("/dev/a:/dev/b:rw").unwrap(), ["/dev/a", "/dev/b", "rw"]);
        for wrong in ["fuse", "/dev/a:b", "/dev/a:/dev/b:x", "/a:/b:r:w"] {
            assert!(device(wrong).is_err(), "{wrong}");
        }
    }
}
