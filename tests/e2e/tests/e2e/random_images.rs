//! Random images in the whole grammar of archives, each mounted in a pod as a volume: the pod's programs see
//! exactly the layers' content. A test of runtime/image checks the same images in the node's own kernel, with
//! their extended attributes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};
use tests_registry::random::{self, Kind, Model, Node};

/// How many images are looked at, `make soak` looks at more; and how many of them in one pod.
const SEEDS_VARIABLE: &str = "PODVISOR_IMAGE_SEEDS";
const SEEDS: u64 = 4;
const OF_A_POD: u64 = 8;

/// The question to busybox for every path below the volume, in the order of the paths' bytes: type and
/// permissions, user, group, time, and the numbers of a device.
const STAT: &str = "stat -c '%f %u %g %Y %t:%T'";

/// The image's root in the container.
fn place(seed: u64) -> String {
    format!("/images/{seed}")
}

/// Bytes of all paths below the root, with their nodes, in the order of the bytes.
fn paths(model: &Model) -> BTreeMap<Vec<u8>, &Node> {
    let named = model.names.iter().map(|(path, number)| (path.join(&b'/'), &model.nodes[*number]));
    named.collect()
}

/// `st_mode` of a node (inode(7)).
fn mode(node: &Node) -> u32 {
    let kind = match node.kind {
        Kind::Directory => 0o040_000,
        Kind::File(_) => 0o100_000,
        Kind::Symlink(_) => 0o120_000,
        Kind::Char(..) => 0o020_000,
        Kind::Block(..) => 0o060_000,
        Kind::Fifo => 0o010_000,
    };
    kind | node.mode
}

fn stat(node: &Node) -> String {
    let (major, minor) = match node.kind {
        Kind::Char(major, minor) | Kind::Block(major, minor) => (major, minor),
        _ => (0, 0),
    };
    let (user, group) = node.owner;
    format!("{:x} {user} {group} {} {major:x}:{minor:x}\n", mode(node), node.mtime.0)
}

/// Asks in the container, and returns the bytes of the answer.
async fn asked(client: &mut Client, container: &str, seed: u64, line: &str) -> Vec<u8> {
    let line = format!("cd {} && {line}", place(seed));
    let answer: v1::ExecSyncResponse = client.exec(container, &["sh", "-c", &line], 120).await.unwrap();
    let errors = String::from_utf8_lossy(&answer.stderr);
    assert_eq!((answer.exit_code, &*errors), (0, ""), "seed {seed}: {line}");
    answer.stdout
}

/// Compares the container's view with the model.
async fn compare(client: &mut Client, container: &str, seed: u64, model: &Model) {
    let paths = paths(model);
    let names: Vec<u8> = paths.keys().flat_map(|path| [b"./", &path[..], b"\0"].concat()).collect();
    let every = |what: &str| format!("find . -mindepth 1 {what} -print0 | sort -z");
    let found = asked(client, container, seed, &every("")).await;
    assert!(found == names, "seed {seed}: {:?}", String::from_utf8_lossy(&found));

    let mut stats = stat(&model.root);
    for node in paths.values() {
        stats += &stat(node);
    }
    let line = format!("{STAT} . && {} | xargs -0r {STAT}", every(""));
    let found = asked(client, container, seed, &line).await;
    assert_eq!(String::from_utf8_lossy(&found), stats, "seed {seed}");

    let (mut contents, mut targets) = (Vec::new(), String::new());
    for node in paths.values() {
        match &node.kind {
            Kind::File(content) => contents.extend(content),
            Kind::Symlink(target) => writeln!(targets, "{}", String::from_utf8_lossy(target)).unwrap(),
            _ => {}
        }
    }
    let line = format!("{} | xargs -0r cat | sha256sum | cut -d' ' -f1", every("-type f"));
    let found = asked(client, container, seed, &line).await;
    let digest = tests_registry::digest_of(&contents);
    assert_eq!(String::from_utf8_lossy(&found).trim(), digest.trim_start_matches("sha256:"), "seed {seed}");
    let line = format!("{} | xargs -0r -n1 readlink", every("-type l"));
    let found = asked(client, container, seed, &line).await;
    assert_eq!(String::from_utf8_lossy(&found), targets, "seed {seed}");
}

/// Runs a pod with these images as volumes of its container.
async fn look_at(host: &Host, client: &mut Client, busybox: &str, seeds: std::ops::Range<u64>) {
    let (mut models, mut mounts) = (Vec::new(), Vec::new());
    for seed in seeds.clone() {
        let (mut layers, model) = random::image(seed);
        // The registry's client pushes no empty blob, as from an empty archive.
        layers.retain(|layer| !layer.bytes.is_empty());
        let name = format!("e2e/random-{seed}");
        host.registry.push_image(&name, "1", layers, serde_json::json!({})).await.unwrap();
        let image = client.pull(&host.image(&format!("{name}:1"))).await.unwrap();
        let image = v1::ImageSpec { image, ..Default::default() };
        let container_path = place(seed);
        mounts.push(v1::Mount { image: Some(image), container_path, readonly: true, ..Default::default() });
        models.push((seed, model));
    }
    let pod = client.run_pod(&spec::pod(&format!("random-{}", seeds.start), host.dir())).await.unwrap();
    let main = v1::ContainerConfig { mounts, ..spec::container("main", busybox, &["sleep", "3600"]) };
    let container = client.run(&pod, main).await.unwrap();
    for (seed, model) in models {
        compare(client, &container, seed, &model).await;
    }
    client.remove_pod(&pod).await.unwrap();
}

#[tokio::test]
async fn a_random_image_is_in_a_pod_what_its_layers_say() {
    let Some(host) = Host::start().await else { return };
    let seeds = std::env::var(SEEDS_VARIABLE).map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let mut client = host.client();
    let busybox = client.pull(&host.busybox()).await.unwrap();
    for first in (0..seeds).step_by(usize::try_from(OF_A_POD).unwrap()) {
        look_at(&host, &mut client, &busybox, first..seeds.min(first + OF_A_POD)).await;
    }
    println!("{seeds} images are in their pods what their layers say");
    host.stop().await.unwrap();
}
