//! `Mount`, both ways. Statuses return the mounts as requested, and for image volumes the image's id.

use proto_cri::v1;
use runtime_pod::ContainerView;
use runtime_spec::{Mount, MountPropagation};

use super::security::{id_mappings_in, id_mappings_out};
use crate::error::Failure;

/// Options of a mount, each with its opposite.
const OPTIONS: [[&str; 2]; 3] = [["noexec", "exec"], ["nosuid", "suid"], ["nodev", "dev"]];

/// A requested mount.
pub(super) fn mount_in(mount: v1::Mount) -> Result<Mount, Failure> {
    let propagation = match v1::MountPropagation::try_from(mount.propagation) {
        Ok(v1::MountPropagation::PropagationPrivate) => MountPropagation::Private,
        Ok(v1::MountPropagation::PropagationHostToContainer) => MountPropagation::HostToContainer,
        Ok(v1::MountPropagation::PropagationBidirectional) => MountPropagation::Bidirectional,
        Err(_) => {
            let text = format!("mounts.propagation: {} is no propagation", mount.propagation);
            return Err(Failure::invalid(text));
        }
    };
    let image = match mount.image {
        Some(image) if image.image.is_empty() && mount.host_path.is_empty() => {
            let text = format!("mounts.image: names none for {}", mount.container_path);
            return Err(Failure::invalid(text));
        }
        image => image.unwrap_or_default(),
    };
    let has = |option: &str| mount.mount_options.iter().any(|asked| asked == option);
    options(&mount.mount_options, &mount.container_path)?;
    Ok(Mount {
        nosuid: has("nosuid"),
        noexec: has("noexec"),
        options: mount.mount_options,
        host_path: mount.host_path,
        must_exist: false,
        container_path: mount.container_path,
        readonly: mount.readonly,
        recursive_read_only: mount.recursive_read_only,
        propagation,
        selinux_relabel: mount.selinux_relabel,
        uid_mappings: id_mappings_in(mount.uid_mappings),
        gid_mappings: id_mappings_in(mount.gid_mappings),
        image: image.image,
        image_user_specified: image.user_specified_image,
        image_sub_path: mount.image_sub_path,
    })
}

/// Refuses options that are unknown, or that contradict each other. `nodev` always holds in a VM.
fn options(asked: &[String], target: &str) -> Result<(), Failure> {
    let refused = |reason: String| Err(Failure::invalid(format!("mounts.mount_options: {reason}")));
    for option in asked {
        match option.as_str() {
            "dev" => {
                return refused(format!("dev for {target}: devices on volumes have no effect in a VM"));
            }
            option if OPTIONS.iter().flatten().any(|known| *known == option) => {}
            other => return refused(format!("{other:?} for {target} is not possible")),
        }
    }
    for [one, other] in OPTIONS {
        if asked.iter().any(|asked| asked == one) && asked.iter().any(|asked| asked == other) {
            return refused(format!("{one} and {other} for {target} contradict each other"));
        }
    }
    Ok(())
}

/// All mounts of a container as requested. The kubelet uses them to find the termination log, and keeps the
/// images with the ids named there.
pub(super) fn mounts_out(container: &ContainerView) -> Vec<v1::Mount> {
    let mounts = container.spec.mounts.iter().enumerate();
    mounts.map(|(number, mount)| mount_out(mount, container.volume_images.get(&number))).collect()
}

fn mount_out(mount: &Mount, image_id: Option<&String>) -> v1::Mount {
    let propagation = match mount.propagation {
        MountPropagation::Private => v1::MountPropagation::PropagationPrivate,
        MountPropagation::HostToContainer => v1::MountPropagation::PropagationHostToContainer,
        MountPropagation::Bidirectional => v1::MountPropagation::PropagationBidirectional,
    };
    v1::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: mount.readonly,
        selinux_relabel: mount.selinux_relabel,
        propagation: propagation.into(),
        uid_mappings: id_mappings_out(&mount.uid_mappings),
        gid_mappings: id_mappings_out(&mount.gid_mappings),
        recursive_read_only: mount.recursive_read_only,
        image: image_id.map(|id| v1::ImageSpec {
            image: id.clone(),
            image_ref: id.clone(),
            user_specified_image: mount.image_user_specified.clone(),
            ..Default::default()
        }),
        image_sub_path: mount.image_sub_path.clone(),
        mount_options: mount.options.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> v1::Mount {
        v1::Mount {
            container_path: "/c".into(),
            host_path: "/h".into(),
            readonly: true,
            selinux_relabel: true,
            propagation: v1::MountPropagation::PropagationPrivate.into(),
            recursive_read_only: true,
            ..Default::default()
        }
    }

    #[test]
    fn a_mount_is_returned_as_it_was_sent() {
        let slave = v1::Mount {
            propagation: v1::MountPropagation::PropagationHostToContainer.into(),
            readonly: false,
            recursive_read_only: false,
            ..host()
        };
        let mapping = vec![v1::IdMapping { container_id: 0, host_id: 1000, length: 9 }];
        let mapped = v1::Mount { uid_mappings: mapping.clone(), gid_mappings: mapping, ..host() };
        let options = ["noexec", "nosuid", "nodev"].map(str::to_owned).into();
        let strict = v1::Mount { mount_options: options, ..host() };
        let taken = mount_in(strict.clone()).unwrap();
        assert!(taken.noexec && taken.nosuid);
        for sent in [host(), slave, mapped, strict] {
            assert_eq!(mount_out(&mount_in(sent.clone()).unwrap(), None), sent);
        }
    }

    #[test]
    fn an_image_volume_is_returned_with_the_images_id() {
        let image = v1::ImageSpec {
            image: "busybox:1".into(),
            user_specified_image: "busybox".into(),
            ..Default::default()
        };
        let sent = v1::Mount {
            host_path: String::new(),
            image: Some(image),
            image_sub_path: "etc".into(),
            ..host()
        };
        let sent_back = mount_out(&mount_in(sent).unwrap(), Some(&"sha256:aa".to_owned()));
        let image = sent_back.image.unwrap();
        assert_eq!((image.image.as_str(), image.image_ref.as_str()), ("sha256:aa", "sha256:aa"));
        assert_eq!(
            (image.user_specified_image.as_str(), sent_back.image_sub_path.as_str()),
            ("busybox", "etc")
        );
    }

    #[test]
    fn options_that_are_unknown_or_contradict_each_other_are_refused() {
        let taken = |options: &[&str]| {
            let mount_options = options.iter().map(|&option| option.to_owned()).collect();
            mount_in(v1::Mount { mount_options, ..host() })
        };
        let plain = taken(&["exec", "suid", "nodev"]).unwrap();
        assert!(!plain.noexec && !plain.nosuid);
        for (options, expected) in [
            (&["noexec", "exec"][..], "mounts.mount_options: noexec and exec for /c contradict each other"),
            (
                &["nodev", "dev"],
                "mounts.mount_options: dev for /c: devices on volumes have no effect in a VM",
            ),
            (&["size=5"], "mounts.mount_options: \"size=5\" for /c is not possible"),
        ] {
            assert_eq!(taken(options).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn an_unknown_propagation_and_an_image_without_a_name_are_refused() {
        let odd = v1::Mount { propagation: 7, ..host() };
        assert!(mount_in(odd).unwrap_err().to_string().contains("mounts.propagation: 7"));
        let image = Some(v1::ImageSpec::default());
        let nameless = v1::Mount { host_path: String::new(), image, ..host() };
        assert!(mount_in(nameless).unwrap_err().to_string().contains("mounts.image"));
    }
}
