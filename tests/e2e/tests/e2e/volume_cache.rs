//! The guest's cache of a volume on the node, by the pod's handler.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use proto_cri::v1;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};

/// A container reads a line of a file, and the next one by the same open file once it finds a file; and looks
/// for another file before and after.
const READER: &str = "exec 3</volume/file; read first <&3; [ -e /volume/gone ] && echo $first >/volume/mine; \
                      until [ -e /go ]; do sleep 0.1; done; \
                      read second <&3; [ -e /volume/gone ] && there=yes || there=no; \
                      echo $second $there >/seen.new; mv /seen.new /seen; exec sleep 100000";

#[tokio::test]
async fn a_guest_keeps_of_a_volume_what_its_handler_says() {
    let Some(mut host) = Host::start().await else { return };
    let path = host.daemon.config().to_owned();
    let mut config = fs::read_to_string(&path).unwrap();
    for cache in ["none", "auto", "always"] {
        config += &format!(
            "[[handler]]\nname = \"{cache}\"\nmemory_mib = 64\nscratch_mib = 512\nvolume_cache = \"{cache}\"\n"
        );
    }
    fs::write(&path, config).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    for (cache, seen) in [("none", "new no"), ("auto", "new no"), ("always", "old yes")] {
        let volume = tempfile::Builder::new().prefix("volume-").tempdir().unwrap();
        let at = |name: &str| volume.path().join(name);
        fs::write(at("file"), "one\nold\n").unwrap();
        fs::write(at("gone"), "").unwrap();
        let pod = client.run_pod_on(&spec::pod(cache, host.dir()), cache).await.unwrap();
        let mut reader = spec::shell("reader", &image, READER);
        let host_path = volume.path().to_str().unwrap().to_owned();
        reader.mounts = vec![v1::Mount { container_path: "/volume".into(), host_path, ..Default::default() }];
        let container = client.run(&pod, reader).await.unwrap();
        // The pod's writes reach the node at once, whatever the guest caches.
        until_seen("the first line in the pod's file", async || {
            let mine = fs::read_to_string(at("mine"));
            if mine.as_ref().is_ok_and(|text| text == "one\n") { Ok(()) } else { Err(mine) }
        })
        .await;
        File::options().write(true).open(at("file")).unwrap().write_all_at(b"new", 4).unwrap();
        fs::remove_file(at("gone")).unwrap();
        let line = "touch /go; until [ -e /seen ]; do sleep 0.1; done; cat /seen";
        assert_eq!(client.sh(&container, line).await.unwrap().trim(), seen, "{cache}");
        client.remove_pod(&pod).await.unwrap();
    }
    host.stop().await.unwrap();
}
