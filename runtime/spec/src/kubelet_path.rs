//! Volumes of a pod, recognised by the kubelet's paths. Pure: the caller checks the existence and kind of a
//! path.
//!
//! The kubelet's root directory can be anywhere, so only the end of a path identifies it (kubelet
//! `kubelet_getters.go`, `pkg/volume/util/subpath`):
//!
//! ```text
//!  <root>/pods/<uid of the pod>/volumes/kubernetes.io~<plugin>/<volume>
//!  <root>/pods/<uid of the pod>/volume-subpaths/<volume>/<container>/<number>
//! ```

use std::path::PathBuf;

/// A kind of volume filled by the kubelet itself, or left empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum VolumePlugin {
    EmptyDir,
    ConfigMap,
    Secret,
    Projected,
    DownwardApi,
}

impl VolumePlugin {
    /// Plugins using the kubelet's atomic writer for their volumes.
    pub const PUBLISHED: [VolumePlugin; 4] =
        [VolumePlugin::ConfigMap, VolumePlugin::Secret, VolumePlugin::Projected, VolumePlugin::DownwardApi];

    /// Name of the plugin's directory among a pod's volumes.
    pub fn directory(self) -> &'static str {
        match self {
            VolumePlugin::EmptyDir => "kubernetes.io~empty-dir",
            VolumePlugin::ConfigMap => "kubernetes.io~configmap",
            VolumePlugin::Secret => "kubernetes.io~secret",
            VolumePlugin::Projected => "kubernetes.io~projected",
            VolumePlugin::DownwardApi => "kubernetes.io~downward-api",
        }
    }

    fn of(directory: &str) -> Option<VolumePlugin> {
        let all = [&VolumePlugin::PUBLISHED[..], &[VolumePlugin::EmptyDir]].concat();
        all.into_iter().find(|plugin| plugin.directory() == directory)
    }
}

/// The kubelet's path on the host of a pod's volume, or of a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeletPath {
    /// The whole volume.
    Volume {
        /// The volume's kind.
        plugin: VolumePlugin,
        /// The volume's directory.
        directory: PathBuf,
    },
    /// A file or a directory of a volume, bound by the kubelet.
    SubPath {
        /// The path of the bind mount.
        path: PathBuf,
        /// The pod's directory.
        pod: PathBuf,
        /// The volume's name in the pod.
        volume: String,
    },
}

impl KubeletPath {
    /// Recognises a path of the pod with this uid. Returns `None` for paths of other pods, and for paths not
    /// in the kubelet's own form.
    pub fn of(pod_uid: &str, host_path: &str) -> Option<KubeletPath> {
        let names: Vec<&str> = host_path.strip_prefix('/')?.split('/').collect();
        if !is_name(pod_uid) || !names.iter().all(|name| is_name(name)) {
            return None;
        }
        let upto = |count: usize| PathBuf::from(format!("/{}", names[..names.len() - count].join("/")));
        match names[..] {
            [.., "pods", uid, "volumes", plugin, _] if uid == pod_uid => {
                Some(KubeletPath::Volume { plugin: VolumePlugin::of(plugin)?, directory: upto(0) })
            }
            [.., "pods", uid, "volume-subpaths", volume, _, number]
                if uid == pod_uid && number.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                Some(KubeletPath::SubPath { path: upto(0), pod: upto(4), volume: volume.to_owned() })
            }
            _ => None,
        }
    }

    /// Directory of the volume, assuming this plugin.
    pub fn directory(&self, of: VolumePlugin) -> Option<PathBuf> {
        match self {
            KubeletPath::Volume { plugin, directory } => (*plugin == of).then(|| directory.clone()),
            KubeletPath::SubPath { pod, volume, .. } => {
                Some(pod.join("volumes").join(of.directory()).join(volume))
            }
        }
    }

    /// The path of the requested part of the volume. `None` for the whole volume.
    pub fn sub_path(&self) -> Option<&std::path::Path> {
        match self {
            KubeletPath::Volume { .. } => None,
            KubeletPath::SubPath { path, .. } => Some(path),
        }
    }
}

/// Returns true if this is the name of one file, without a path to another place.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    const UID: &str = "0d2e6f3c-8a52-4c40-9b8b-0c0a3a7b3a11";

    fn at(path: &str) -> Option<KubeletPath> {
        KubeletPath::of(UID, &path.replace("UID", UID))
    }

    #[test]
    fn a_volume_is_known_by_the_end_of_its_path_wherever_the_kubelets_root_is() {
        for root in ["/var/lib/kubelet", "/data/k8s/kubelet", "/var/lib/k0s/kubelet", ""] {
            for (name, plugin) in [
                ("empty-dir", VolumePlugin::EmptyDir),
                ("configmap", VolumePlugin::ConfigMap),
                ("secret", VolumePlugin::Secret),
                ("projected", VolumePlugin::Projected),
                ("downward-api", VolumePlugin::DownwardApi),
            ] {
                let path = format!("{root}/pods/{UID}/volumes/kubernetes.io~{name}/data");
                let found = at(&path).unwrap();
                assert_eq!(found, KubeletPath::Volume { plugin, directory: path.clone().into() });
                assert_eq!(found.directory(plugin).as_deref(), Some(Path::new(&path)));
            }
        }
    }

    #[test]
    fn a_sub_path_leads_to_its_volume_of_any_kind() {
        let path = format!("/k/pods/{UID}/volume-subpaths/config/web/0");
        let found = at(&path).unwrap();
        assert_eq!(found.sub_path(), Some(Path::new(&path)));
        let directory = found.directory(VolumePlugin::Secret).unwrap();
        assert_eq!(directory, Path::new(&format!("/k/pods/{UID}/volumes/kubernetes.io~secret/config")));
    }

    #[test]
    fn what_only_looks_like_a_volume_of_the_pod_is_none() {
        for path in [
            // Another pod's.
            "/k/pods/other/volumes/kubernetes.io~secret/a",
            "/k/pods/UID-2/volumes/kubernetes.io~secret/a",
            "/k/pods/UID/volumes/../../other/volumes/kubernetes.io~secret/a",
            // Not in the kubelet's own form.
            "/k/pods/UID/volumes/kubernetes.io~secret/a/",
            "/k/pods/UID/volumes//kubernetes.io~secret/a",
            "/k/pods/./UID/volumes/kubernetes.io~secret/a",
            "k/pods/UID/volumes/kubernetes.io~secret/a",
            "/k/pods/UID/volumes/kubernetes.io~secret/..",
            // Above or within a volume, but not the volume itself.
            "/k/pods/UID/volumes/kubernetes.io~secret",
            "/k/pods/UID/volumes/kubernetes.io~secret/a/key",
            "/k/pods/UID/volumes/kubernetes.io~secret/a/..data/key",
            // Other kinds, and no volumes at all.
            "/k/pods/UID/volumes/kubernetes.io~csi/a",
            "/k/pods/UID/volumes/kubernetes.io~csi/a/mount",
            "/k/pods/UID/volumes/secret/a",
            "/k/pods/UID/etc-hosts",
            "/k/pods/UID/containers/app/9f1c2a",
            "/k/pods/UID/volume-subpaths/a/web/one",
            "/k/pods/UID/volume-subpaths/a/web",
            "/k/pods/UID/volume-subpaths/a/../0",
            "/k/UID/volumes/kubernetes.io~secret/a",
            "",
            "/",
        ] {
            assert_eq!(at(path), None, "{path}");
        }
    }

    #[test]
    fn a_pod_without_a_sensible_uid_has_no_such_volumes() {
        for uid in ["", ".", "..", "a/b"] {
            let path = format!("/k/pods/{uid}/volumes/kubernetes.io~secret/a");
            assert_eq!(KubeletPath::of(uid, &path), None, "{uid:?}");
        }
    }

    proptest! {
        #[test]
        fn a_recognised_path_never_leads_upwards(path in "(/(\\.|\\.\\.|pods|u|volumes|kubernetes.io~secret|volume-subpaths|0)){0,9}") {
            if let Some(found) = KubeletPath::of("u", &path) {
                let directory = found.directory(VolumePlugin::Secret).unwrap();
                prop_assert!(!directory.components().any(|part| part == std::path::Component::ParentDir));
                prop_assert!(directory.to_str().unwrap().contains("/pods/u/volumes/"));
            }
        }
    }
}
