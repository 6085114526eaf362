//! A container's view to `Container` and `ContainerStatus`.

use proto_cri::v1;
use runtime_pod::{ContainerState, ContainerView};
use runtime_spec::ContainerSpec;

use super::{mount, resources};

/// For lists.
pub(crate) fn container_item(container: &ContainerView) -> v1::Container {
    v1::Container {
        id: container.id.clone(),
        pod_sandbox_id: container.pod_id.clone(),
        metadata: Some(metadata(&container.spec)),
        image: Some(image(&container.spec)),
        image_ref: container.image_id.clone(),
        state: container_state(container.state).into(),
        created_at: container.created_at_ns,
        labels: container.spec.labels.clone(),
        annotations: container.spec.annotations.clone(),
        image_id: container.image_id.clone(),
    }
}

/// The whole status.
pub(crate) fn container_status(container: &ContainerView) -> v1::ContainerStatus {
    let spec = &container.spec;
    v1::ContainerStatus {
        id: container.id.clone(),
        metadata: Some(metadata(spec)),
        state: container_state(container.state).into(),
        created_at: container.created_at_ns,
        started_at: container.started_at_ns,
        finished_at: container.finished_at_ns,
        exit_code: container.exit_code,
        image: Some(shown_image(container)),
        // The kubelet publishes this one as `imageID`. It keeps images by the id in lists.
        image_ref: container.image_ref.clone(),
        reason: container.reason.map(|reason| reason.name().to_owned()).unwrap_or_default(),
        message: container.message.clone(),
        labels: spec.labels.clone(),
        annotations: spec.annotations.clone(),
        mounts: mount::mounts_out(container),
        log_path: container.log_path.display().to_string(),
        resources: Some(v1::ContainerResources {
            linux: Some(resources::resources_out(&container.resources)),
            windows: None,
        }),
        image_id: container.image_id.clone(),
        user: Some(v1::ContainerUser {
            linux: Some(v1::LinuxContainerUser {
                uid: container.user.uid.into(),
                gid: container.user.gid.into(),
                supplemental_groups: container.user.groups.iter().map(|group| i64::from(*group)).collect(),
            }),
        }),
        stop_signal: stop_signal(container.stop_signal).into(),
    }
}

fn metadata(spec: &ContainerSpec) -> v1::ContainerMetadata {
    v1::ContainerMetadata { name: spec.name.clone(), attempt: spec.attempt }
}

fn image(spec: &ContainerSpec) -> v1::ImageSpec {
    let user_specified_image = if spec.user_specified_image.is_empty() {
        spec.image.clone()
    } else {
        spec.user_specified_image.clone()
    };
    v1::ImageSpec { image: spec.image.clone(), user_specified_image, ..Default::default() }
}

/// The image for people: the kubelet publishes it as the container's `image`. Other runtimes show a tag, too.
fn shown_image(container: &ContainerView) -> v1::ImageSpec {
    let asked = image(&container.spec);
    match container.image_tag.as_str() {
        "" => asked,
        tag => v1::ImageSpec { image: tag.to_owned(), ..asked },
    }
}

pub(super) fn container_state(state: ContainerState) -> v1::ContainerState {
    match state {
        ContainerState::Created => v1::ContainerState::ContainerCreated,
        ContainerState::Running => v1::ContainerState::ContainerRunning,
        ContainerState::Exited => v1::ContainerState::ContainerExited,
        ContainerState::Unknown => v1::ContainerState::ContainerUnknown,
    }
}

/// CRI's enum value for a Linux signal number, found by its name.
fn stop_signal(number: u8) -> v1::Signal {
    (1..=65)
        .filter_map(|value| v1::Signal::try_from(value).ok())
        .find(|signal| {
            let name = signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-");
            runtime_spec::parse_signal(&name).is_ok_and(|parsed| parsed.0 == number)
        })
        .unwrap_or(v1::Signal::RuntimeDefault)
}

#[cfg(test)]
mod tests {
    use runtime_spec::ExitReason;

    use super::*;

    fn view() -> ContainerView {
        ContainerView {
            id: "c1".into(),
            pod_id: "p1".into(),
            spec: ContainerSpec { image: "sha256:aa".into(), ..Default::default() },
            image_id: "sha256:aa".into(),
            image_ref: "registry/app@sha256:bb".into(),
            image_tag: String::new(),
            state: ContainerState::Exited,
            created_at_ns: 1,
            started_at_ns: 2,
            finished_at_ns: 3,
            exit_code: 137,
            reason: Some(ExitReason::OomKilled),
            message: String::new(),
            log_path: "/logs/c1.log".into(),
            user: Default::default(),
            stop_signal: 15,
            volume_images: Default::default(),
            resources: Default::default(),
            process: Default::default(),
        }
    }

    #[test]
    fn the_log_path_is_returned_as_it_is() {
        assert_eq!(container_status(&view()).log_path, "/logs/c1.log");
    }

    #[test]
    fn labels_and_annotations_come_back_unaltered() {
        let labels =
            [("io.kubernetes.pod.uid".to_owned(), " ü\n".to_owned()), ("e".to_owned(), String::new())];
        let spec = ContainerSpec { labels: labels.clone().into(), ..view().spec };
        let item = container_item(&ContainerView { spec, ..view() });
        assert_eq!(item.labels, labels.into());
    }

    #[test]
    fn the_users_name_of_the_image_is_returned_beside_its_id() {
        let spec = ContainerSpec { user_specified_image: "busybox:1".into(), ..view().spec };
        let image = container_status(&ContainerView { spec, ..view() }).image.unwrap();
        assert_eq!((image.image.as_str(), image.user_specified_image.as_str()), ("sha256:aa", "busybox:1"));
    }

    #[test]
    fn a_status_shows_the_images_tag_and_lists_what_was_asked_for() {
        let tagged = ContainerView { image_tag: "docker.io/library/busybox:1".into(), ..view() };
        let status = container_status(&tagged).image.unwrap();
        assert_eq!(status.image, "docker.io/library/busybox:1");
        assert_eq!(container_item(&tagged).image.unwrap().image, "sha256:aa");
    }

    #[test]
    fn a_status_has_the_digest_reference_of_the_image_and_lists_have_the_id() {
        let (item, status) = (container_item(&view()), container_status(&view()));
        assert_eq!(status.image_ref, "registry/app@sha256:bb");
        assert_eq!((item.image_id.as_str(), status.image_id.as_str()), ("sha256:aa", "sha256:aa"));
        assert_eq!(item.image_ref, item.image_id);
    }

    #[test]
    fn stop_signals_are_returned_in_the_apis_own_numbers() {
        assert_eq!(stop_signal(15), v1::Signal::Sigterm);
        assert_eq!(stop_signal(9), v1::Signal::Sigkill);
        assert_eq!(stop_signal(34), v1::Signal::Sigrtmin);
        assert_eq!(stop_signal(0), v1::Signal::RuntimeDefault);
    }
}
