//! Writable layers: their limits, stable inode numbers, and a full disk of the node while containers write.

use std::process::Stdio;

use tests_e2e::client::Client;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};
use tokio::process::Command;

/// MiB of a disk with room for an image, a pod and the pod's writes.
const DISK_MIB: u64 = 256;
/// MiB written by the container, more than the free space.
const WRITTEN_MIB: u64 = 48;

/// Waits until the pod has so many full disks.
async fn until_full_disks(client: &mut Client, pod: &str, count: u64) {
    until_seen(format!("the pod to have {count} full disks"), async || {
        let (_, info) = client.pod_status_verbose(pod).await.unwrap();
        if info["full_disks"] == count { Ok(()) } else { Err(info) }
    })
    .await;
}

#[tokio::test]
async fn a_layer_with_a_limit_takes_no_more_and_the_others_write_on() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut config = spec::pod("limited", host.dir());
    config.annotations.insert("writable-layer-limit.podvisor.io/small".into(), "4Mi".into());
    let pod = client.run_pod(&config).await.unwrap();
    let small = client.run(&pod, spec::shell("small", &image, "exec sleep 100000")).await.unwrap();
    let large = client.run(&pod, spec::shell("large", &image, "exec sleep 100000")).await.unwrap();
    let write = "dd if=/dev/zero of=/file bs=1M count=8 2>&1; stat -c %s /file";
    let refused = client.sh(&small, write).await.unwrap();
    assert!(refused.contains("Disk quota exceeded"), "{refused}");
    let size: u64 = refused.lines().last().unwrap().parse().unwrap();
    assert!(size < 4 << 20, "{size}");
    assert!(client.sh(&large, write).await.unwrap().ends_with("8388608\n"));
    // Removed files free space again.
    let again = "rm /file && dd if=/dev/zero of=/other bs=1M count=2 2>/dev/null && stat -c %s /other";
    assert_eq!(client.sh(&small, again).await.unwrap(), "2097152\n");
    let mut wrong = spec::pod("wrong", host.dir());
    wrong.annotations.insert("podvisor.io/writable-layer-limit".into(), "a lot".into());
    let refused = client.run_pod(&wrong).await.unwrap_err();
    assert!(refused.message().contains("podvisor.io/writable-layer-limit is \"a lot\""), "{refused}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_file_of_the_image_keeps_its_inode_number_when_it_is_written_to() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("inodes", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::shell("main", &image, "exec sleep 100000")).await.unwrap();
    let line = "set -- /etc/passwd /bin; for f; do stat -c '%d %i' $f; done >/tmp/before; \
                echo x >>/etc/passwd; touch /bin/new; for f; do stat -c '%d %i' $f; done | cmp - /tmp/before && echo same";
    assert_eq!(client.sh(&container, line).await.unwrap(), "same\n");
    // Programs of 32 bits cannot stat others, and JavaScript's numbers take several for one.
    let line = "stat -c %i / /bin /bin/busybox /etc/passwd /tmp/before; ls -i /bin | awk '{ print $1 }'";
    for number in client.sh(&container, line).await.unwrap().lines() {
        let number = number.parse::<u64>().unwrap();
        assert!(number <= u64::from(u32::MAX), "{number}");
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn writes_wait_while_the_nodes_disk_is_full_and_none_is_lost() {
    let Some(host) = Host::start_on_disk(DISK_MIB).await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("writer", host.dir())).await.unwrap();
    let line = format!(
        "until [ -e /go ]; do sleep 0.1; done; \
         n=0; while [ $n -lt {WRITTEN_MIB} ]; do yes $n | head -c 1048576 >>/file || exit 1; n=$((n+1)); done; \
         sync; exec sleep 100000"
    );
    let container = client.run(&pod, spec::shell("main", &image, &line)).await.unwrap();
    let idle = client.run(&pod, spec::shell("idle", &image, "exec sleep 100000")).await.unwrap();
    let ended = client.run(&pod, spec::shell("ended", &image, "echo x >/file")).await.unwrap();
    client.wait(&ended).await.unwrap();
    client.sh(&container, "touch /go.new").await.unwrap();
    host.disk().fill().unwrap();
    // The name is in the guest's memory until the guest writes it back.
    client.sh(&container, "mv /go.new /go; sync >/dev/null 2>&1 &").await.unwrap();
    until_full_disks(&mut client, &pod, 1).await;
    assert_eq!(client.sh(&idle, "echo here").await.unwrap(), "here\n", "who writes nothing goes on");
    // A container made meanwhile needs the same disk. It may wait or fail, and holds up no other.
    let (mut creating, in_pod) = (host.client(), pod.clone());
    let new = spec::shell("new", &image, "exec sleep 100000");
    let created = tokio::spawn(async move { creating.create(&in_pod, new).await });
    assert_eq!(client.sh(&idle, "sleep 2; echo here").await.unwrap(), "here\n", "beside a creation");
    // The kubelet removes dead containers when a disk is full. The unmount of one's layer waits for no
    // other's.
    let mut removing = host.client();
    let removed = tokio::spawn(async move { removing.remove(&ended).await });
    assert_eq!(client.sh(&idle, "sleep 1; echo here").await.unwrap(), "here\n", "beside a removal, too");
    let mut ps = Command::new(host.daemon.binary());
    ps.arg("--config").arg(host.daemon.config()).arg("ps").stdin(Stdio::null());
    let table = String::from_utf8(ps.output().await.unwrap().stdout).unwrap();
    assert!(table.contains("running, disk full"), "{table}");
    host.disk().free().unwrap();
    until_full_disks(&mut client, &pod, 0).await;
    let sum = format!(
        "until [ $(stat -c %s /file) = {} ]; do sleep 0.1; done; md5sum </file; \
         n=0; while [ $n -lt {WRITTEN_MIB} ]; do yes $n | head -c 1048576; n=$((n+1)); done | md5sum",
        WRITTEN_MIB << 20
    );
    let sums = client.sh(&container, &sum).await.unwrap();
    let (found, asked) = sums.trim().split_once('\n').unwrap();
    assert_eq!(found, asked);
    removed.await.unwrap().unwrap();
    println!("the container made beside the full disk: {:?}", created.await.unwrap());
    client.run(&pod, spec::shell("next", &image, "exec sleep 100000")).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_whose_writes_wait_is_stopped_and_removed() {
    let Some(host) = Host::start_on_disk(DISK_MIB).await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("writer", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::shell("main", &image, "exec sleep 100000")).await.unwrap();
    host.disk().fill().unwrap();
    client.sh(&container, "(dd if=/dev/zero of=/file bs=1M count=32; sync) >/dev/null 2>&1 &").await.unwrap();
    until_full_disks(&mut client, &pod, 1).await;
    client.stop(&container, 0).await.unwrap();
    client.stop_pod(&pod).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    host.disk().free().unwrap();
    assert!(client.pods().await.unwrap().is_empty());
    host.stop().await.unwrap();
}
