//! A plain container, resolved for a guest.

use runtime_spec::{ContainerPlan, ContainerSpec, GuestPaths, ImageConfig, PodSpec};

/// A container with the user `user`.
pub fn plan(user: &str) -> ContainerPlan {
    let pod = PodSpec { name: "p".into(), namespace: "n".into(), uid: "u".into(), ..PodSpec::default() };
    let container = ContainerSpec { name: "c".into(), image: "i".into(), ..ContainerSpec::default() };
    let image = ImageConfig { user: user.into(), cmd: vec!["/run".into()], ..ImageConfig::default() };
    let paths = GuestPaths {
        resolv_conf: "/r",
        hosts: "/h",
        hostname: "/n",
        shm: "/s",
        pid_namespace: "/p",
        cgroup_parent: "/c",
        shared: "/d",
        image_volumes: "/i",
        guest_volumes: "/w",
        host_sockets: "/k",
        declared_volumes: "/v",
    };
    ContainerPlan::resolve(&pod, &container, &image, "c1", &paths).expect("a plain container")
}
