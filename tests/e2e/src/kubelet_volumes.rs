//! Volumes of a pod, laid out on the node as a kubelet does it. The mounts go with the value.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use proto_cri::v1;

/// Root directory of a kubelet, with the volumes of one pod.
#[derive(Debug)]
pub struct KubeletVolumes {
    root: tempfile::TempDir,
    uid: String,
    mounted: Vec<PathBuf>,
    versions: u64,
}

impl KubeletVolumes {
    /// Makes the directories of the pod.
    ///
    /// # Errors
    /// A directory cannot be made.
    pub fn of(pod: &v1::PodSandboxConfig) -> io::Result<KubeletVolumes> {
        KubeletVolumes::below(&std::env::temp_dir(), pod)
    }

    /// Makes the directories of the pod on the file system of `parent`.
    ///
    /// # Errors
    /// A directory cannot be made.
    pub fn below(parent: &Path, pod: &v1::PodSandboxConfig) -> io::Result<KubeletVolumes> {
        let uid = pod.metadata.as_ref().map(|metadata| metadata.uid.clone()).unwrap_or_default();
        let root = tempfile::Builder::new().prefix("kubelet-").tempdir_in(parent)?;
        Ok(KubeletVolumes { root, uid, mounted: Vec::new(), versions: 0 })
    }

    /// Directory of a volume.
    pub fn directory(&self, plugin: &str, name: &str) -> PathBuf {
        self.pod().join("volumes").join(format!("kubernetes.io~{plugin}")).join(name)
    }

    fn pod(&self) -> PathBuf {
        self.root.path().join("pods").join(&self.uid)
    }

    /// Makes an emptyDir of `medium: Memory`.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn memory(&mut self, name: &str, bytes: u64, group: u32) -> io::Result<PathBuf> {
        let directory = self.directory("empty-dir", name);
        fs::create_dir_all(&directory)?;
        let options = format!("size={bytes}");
        mount(Some("tmpfs"), &directory, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))?;
        self.mounted.push(directory.clone());
        chown(&directory, Some(0), Some(group))?;
        fs::set_permissions(&directory, Permissions::from_mode(0o2777))?;
        Ok(directory)
    }

    /// Makes an emptyDir on disk, with this mode and group.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn disk(&mut self, name: &str, mode: u32, group: u32) -> io::Result<PathBuf> {
        let directory = self.directory("empty-dir", name);
        fs::create_dir_all(&directory)?;
        chown(&directory, Some(0), Some(group))?;
        fs::set_permissions(&directory, Permissions::from_mode(mode))?;
        Ok(directory)
    }

    /// Changes the size of an emptyDir of `medium: Memory`.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn resize(&self, name: &str, bytes: u64) -> io::Result<()> {
        let options = format!("size={bytes}");
        let directory = self.directory("empty-dir", name);
        Ok(mount(None::<&str>, &directory, None::<&str>, MsFlags::MS_REMOUNT, Some(options.as_str()))?)
    }

    /// Publishes a version of a Secret or a ConfigMap, as the kubelet's atomic writer does it: all of it at
    /// once. The files have this mode and group.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn publish(
        &mut self,
        plugin: &str,
        name: &str,
        files: &[(&str, &str)],
        (mode, group): (u32, u32),
    ) -> io::Result<PathBuf> {
        let volume = self.directory(plugin, name);
        if !volume.exists() {
            fs::create_dir_all(&volume)?;
            if plugin != "configmap" {
                mount(Some("tmpfs"), &volume, Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
                self.mounted.push(volume.clone());
            }
            chown(&volume, Some(0), Some(group))?;
            fs::set_permissions(&volume, Permissions::from_mode(0o2755))?;
        }
        self.versions += 1;
        let version = format!("..2026_01_31_12_00_00.{:09}", self.versions);
        write_version(&volume.join(&version), files, mode, group)?;
        let old = fs::read_link(volume.join("..data")).ok();
        symlink(&version, volume.join("..data_tmp"))?;
        fs::rename(volume.join("..data_tmp"), volume.join("..data"))?;
        for name in fs::read_dir(volume.join(&version))? {
            let name = name?.file_name();
            match symlink(Path::new("..data").join(&name), volume.join(&name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        if let Some(old) = old {
            fs::remove_dir_all(volume.join(old))?;
        }
        Ok(volume)
    }

    /// Binds a part of a volume for a container. If nothing is there, a directory is made.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn sub_path(&mut self, volume: &Path, part: &str, container: &str) -> io::Result<PathBuf> {
        let source = volume.join(part);
        if !source.exists() {
            fs::create_dir_all(&source)?;
        }
        let name = volume.file_name().unwrap_or_default();
        let parent = self.pod().join("volume-subpaths").join(name).join(container);
        fs::create_dir_all(&parent)?;
        let place = parent.join(self.mounted.len().to_string());
        if source.is_dir() {
            fs::create_dir(&place)?;
        } else {
            fs::File::create(&place)?;
        }
        mount(Some(&source), &place, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
        self.mounted.push(place.clone());
        Ok(place)
    }
}

impl Drop for KubeletVolumes {
    fn drop(&mut self) {
        for path in self.mounted.iter().rev() {
            let _ = umount2(path, MntFlags::MNT_DETACH);
        }
    }
}

fn write_version(place: &Path, files: &[(&str, &str)], mode: u32, group: u32) -> io::Result<()> {
    fs::create_dir(place)?;
    chown(place, Some(0), Some(group))?;
    for (path, content) in files {
        let file = place.join(path);
        for parent in file.ancestors().skip(1).take_while(|parent| *parent != place) {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, content)?;
        chown(&file, Some(0), Some(group))?;
        fs::set_permissions(&file, Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// A mount of a container.
pub fn mounted(host_path: &Path, container_path: &str) -> v1::Mount {
    v1::Mount {
        host_path: host_path.display().to_string(),
        container_path: container_path.into(),
        ..Default::default()
    }
}
