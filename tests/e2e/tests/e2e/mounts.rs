//! Mounts of the host's directories and of images in containers.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, umount2};
use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::traces::Traces;
use tests_e2e::wait::until;
use tests_e2e::{Host, spec};
use tonic::Code;

const NONE: Option<&str> = None;

/// Directories and files of a node, with filesystems mounted among them.
struct Volumes {
    dir: tempfile::TempDir,
    mounted: Vec<PathBuf>,
}

impl Volumes {
    fn new() -> Volumes {
        let dir = tempfile::Builder::new().prefix("volumes-").tempdir().unwrap();
        Volumes { dir, mounted: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn dir(&self, name: &str) -> PathBuf {
        fs::create_dir_all(self.path(name)).unwrap();
        self.path(name)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn tmpfs(&mut self, name: &str) -> PathBuf {
        let path = self.dir(name);
        nix::mount::mount(Some("none"), &path, Some("tmpfs"), MsFlags::empty(), NONE).unwrap();
        self.mounted.push(path.clone());
        path
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        for path in self.mounted.iter().rev() {
            let _ = umount2(path, MntFlags::MNT_DETACH);
        }
    }
}

fn mount(host_path: &Path, container_path: &str) -> v1::Mount {
    v1::Mount {
        host_path: host_path.display().to_string(),
        container_path: container_path.into(),
        ..Default::default()
    }
}

fn image_volume(image: &str, container_path: &str, image_sub_path: &str) -> v1::Mount {
    let image = v1::ImageSpec { image: image.into(), ..Default::default() };
    let (container_path, image_sub_path) = (container_path.into(), image_sub_path.into());
    v1::Mount { image: Some(image), container_path, image_sub_path, readonly: true, ..Default::default() }
}

fn sleeper(name: &str, image: &str, mounts: Vec<v1::Mount>) -> v1::ContainerConfig {
    v1::ContainerConfig { mounts, ..spec::container(name, image, &["sleep", "3600"]) }
}

/// Counts the mounts in a pod's shared directory, by the mount table of its share: the directory is its root.
async fn bound(client: &mut Client, pod: &str) -> usize {
    let share = client.share(pod).await.unwrap();
    let table = fs::read_to_string(format!("/proc/{share}/mountinfo")).unwrap();
    table.lines().count() - 1
}

#[tokio::test]
async fn directories_and_files_of_the_host_are_the_containers_too() {
    let Some(mut host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut volumes = Volumes::new();
    volumes.dir("real");
    symlink("real", volumes.path("link")).unwrap();
    fs::create_dir(volumes.path("real/v1")).unwrap();
    fs::write(volumes.path("real/v1/key"), "old").unwrap();
    symlink("v1", volumes.path("real/..data")).unwrap();
    symlink("..data/key", volumes.path("real/key")).unwrap();
    volumes.file("single", "from the host\n");
    volumes.file("hosts", "10.9.8.7 kubelet\n");
    volumes.file("termination", "");
    volumes.tmpfs("tree/below");
    let shared = volumes.tmpfs("late");
    nix::mount::mount(NONE, &shared, NONE, MsFlags::MS_SHARED, NONE).unwrap();
    fs::create_dir(shared.join("point")).unwrap();

    let read_only = v1::Mount { readonly: true, ..mount(&volumes.path("tree"), "/ro") };
    let recursive =
        v1::Mount { recursive_read_only: true, container_path: "/rro".into(), ..read_only.clone() };
    let late = v1::Mount {
        propagation: v1::MountPropagation::PropagationHostToContainer.into(),
        ..mount(&shared, "/late")
    };
    let options = ["noexec", "nosuid", "nodev"].map(str::to_owned).into();
    let strict = v1::Mount { mount_options: options, ..mount(&volumes.path("real"), "/strict") };
    let mounts = vec![
        strict,
        mount(&volumes.path("link"), "/data"),
        mount(&volumes.path("single"), "/some/where/file"),
        mount(&volumes.path("hosts"), "/etc/hosts"),
        mount(&volumes.path("termination"), "/dev/termination-log"),
        read_only,
        recursive,
        late,
        mount(&shared, "/early"),
    ];
    let pod = client.run_pod(&spec::pod("mounts", host.dir())).await.unwrap();
    assert_eq!(bound(&mut client, &pod).await, 0);
    let main = client.run(&pod, sleeper("main", &image, mounts.clone())).await.unwrap();
    assert_eq!(client.status(&main).await.unwrap().mounts, mounts);

    // Both ways, without a restart.
    let line =
        "echo guest > /data/guest; cat /some/where/file; echo more >> /some/where/file; cat /etc/hosts";
    assert_eq!(client.sh(&main, line).await.unwrap(), "from the host\n10.9.8.7 kubelet\n");
    assert_eq!(volumes.read("real/guest"), "guest\n");
    assert_eq!(volumes.read("single"), "from the host\nmore\n");
    fs::write(volumes.path("single"), "again\n").unwrap();
    assert_eq!(client.sh(&main, "cat /some/where/file").await.unwrap(), "again\n");
    client.sh(&main, "echo last words > /dev/termination-log").await.unwrap();
    assert_eq!(volumes.read("termination"), "last words\n");

    // Options of one mount, and not of another one of the same directory.
    let line = "printf '#!/bin/sh\necho runs\n' > /data/program; chmod +x /data/program; /data/program; /strict/program || echo does not; \
                sed -n 's,^[^ ]* /strict [^ ]* ,,p' /proc/mounts";
    let output = client.sh(&main, line).await.unwrap();
    assert!(output.contains("runs\n") && output.contains("does not\n"), "{output}");
    assert!(output.contains("nosuid,nodev,noexec"), "{output}");

    // A swapped link, as in the kubelet's updates of a ConfigMap.
    assert_eq!(client.sh(&main, "cat /data/key").await.unwrap(), "old");
    fs::create_dir(volumes.path("real/v2")).unwrap();
    fs::write(volumes.path("real/v2/key"), "new").unwrap();
    symlink("v2", volumes.path("real/..tmp")).unwrap();
    fs::rename(volumes.path("real/..tmp"), volumes.path("real/..data")).unwrap();
    client.prints(&main, "cat /data/key", "new").await.unwrap();

    // Read-only: the mount alone, or all below too.
    let line = "for i in ro/x ro/below/x rro/x rro/below/x; do touch /$i 2>&1 && echo $i; done";
    let output = client.sh(&main, line).await.unwrap();
    assert_eq!(output.lines().filter(|line| line.contains("Read-only file system")).count(), 3, "{output}");
    assert!(output.contains("ro/below/x\n") && volumes.path("tree/below/x").exists(), "{output}");

    // A later mount of the host reaches the container with the matching propagation.
    volumes.tmpfs("late/point");
    volumes.file("late/point/news", "");
    client.prints(&main, "ls /late/point", "news\n").await.unwrap();
    assert_eq!(client.sh(&main, "ls /early/point").await.unwrap(), "");

    // The mounts outlive the daemon, and end with the container or with the pod.
    let count = bound(&mut client, &pod).await;
    assert!(count >= mounts.len());
    host.daemon.kill_and_restart().await.unwrap();
    let mut client = host.client();
    assert_eq!(bound(&mut client, &pod).await, count);
    assert_eq!(client.status(&main).await.unwrap().mounts, mounts);
    assert_eq!(client.sh(&main, "cat /data/guest").await.unwrap(), "guest\n");
    client.remove(&main).await.unwrap();
    assert_eq!(bound(&mut client, &pod).await, 0);
    let second = client.run(&pod, sleeper("second", &image, mounts)).await.unwrap();
    assert_eq!(client.sh(&second, "cat /data/guest").await.unwrap(), "guest\n");
    client.remove_pod(&pod).await.unwrap();
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    assert_eq!(volumes.read("real/guest"), "guest\n");
    host.stop().await.unwrap();
}

/// A container running a program with the node's Python, with the directory at `/data`.
fn python(name: &str, image: &str, program: &str, data: &Path) -> v1::ContainerConfig {
    let read_only = |path: &str| v1::Mount { readonly: true, ..mount(Path::new(path), path) };
    let mounts = vec![mount(data, "/data"), read_only("/usr"), read_only("/lib"), read_only("/lib64")];
    let command = ["/usr/bin/python3", "-I", "-S", "-c", program];
    v1::ContainerConfig { mounts, ..spec::container(name, image, &command) }
}

#[tokio::test]
async fn writes_through_memory_are_on_the_host_before_the_exit_is_reported() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let volumes = Volumes::new();
    let data = volumes.dir("data");
    fs::write(data.join("mapped"), vec![0; 1 << 20]).unwrap();
    // Closing a file writes its pages, so it is closed before; then nobody asks for them to be written.
    let program = "import mmap, os\n\
                   m = mmap.mmap(os.open('/data/mapped', os.O_RDWR), 0)\n\
                   os.closerange(3, 256)\n\
                   m[:] = b'x' * len(m)\n\
                   os._exit(7)";
    let config = python("writer", &image, program, &data);
    let sandbox = spec::pod("mapped", host.dir());
    let pod = client.run_pod(&sandbox).await.unwrap();
    let writer = client.run(&pod, config).await.unwrap();
    let ended = client.wait(&writer).await.unwrap();
    let log = fs::read_to_string(Path::new(&sandbox.log_directory).join("writer.log")).unwrap();
    assert_eq!(ended.exit_code, 7, "{log}");
    assert!(fs::read(data.join("mapped")).unwrap().iter().all(|byte| *byte == b'x'));
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_mapped_shared_is_the_one_that_others_read_and_write() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let volumes = Volumes::new();
    let data = volumes.dir("data");
    fs::write(data.join("mapped"), "old").unwrap();
    let program = "import mmap, os, time\n\
                   path = '/data/mapped'\n\
                   one, other = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)\n\
                   map = mmap.mmap(one, 0)\n\
                   seen = [map[:]]\n\
                   map[:] = b'map'\n\
                   seen.append(os.pread(other, 3, 0))\n\
                   os.pwrite(other, b'pod', 0)\n\
                   seen.append(map[:])\n\
                   open('/data/written', 'w').close()\n\
                   while not os.path.exists('/data/changed'): time.sleep(0.1)\n\
                   seen += [os.pread(other, 3, 0), os.fstat(other).st_size, map[:]]\n\
                   print(seen, flush=True)";
    let sandbox = spec::pod("mapper", host.dir());
    let pod = client.run_pod(&sandbox).await.unwrap();
    let mapper = client.run(&pod, python("mapper", &image, program, &data)).await.unwrap();
    until("the program to have written", async || data.join("written").exists()).await;
    assert_eq!(fs::read(data.join("mapped")).unwrap(), b"pod");
    fs::File::options().write(true).open(data.join("mapped")).unwrap().write_all(b"new").unwrap();
    fs::write(data.join("changed"), "").unwrap();
    client.wait(&mapper).await.unwrap();
    let log = fs::read_to_string(Path::new(&sandbox.log_directory).join("mapper.log")).unwrap();
    assert!(log.contains("[b'old', b'map', b'pod', b'new', 3, b'new']"), "{log}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn containers_with_one_volume_have_the_same_sockets_pipes_and_maps() {
    let Some(host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let volumes = Volumes::new();
    let data = volumes.dir("data");
    let serving = "import mmap, os, socket\n\
                   listener = socket.socket(socket.AF_UNIX)\n\
                   listener.bind('/data/socket')\n\
                   listener.listen()\n\
                   file = os.open('/data/map', os.O_RDWR | os.O_CREAT)\n\
                   os.truncate(file, 4096)\n\
                   map = mmap.mmap(file, 4096)\n\
                   os.mkfifo('/data/pipe')\n\
                   stream, _ = listener.accept()\n\
                   map[:3] = b'one'\n\
                   stream.send(b'x')\n\
                   piped = open('/data/pipe').read()\n\
                   print(piped, stream.recv(3), map[3:6], flush=True)";
    let using = "import mmap, os, socket, time\n\
                 while not os.path.exists('/data/pipe'): time.sleep(0.1)\n\
                 stream = socket.socket(socket.AF_UNIX)\n\
                 stream.connect('/data/socket')\n\
                 stream.recv(1)\n\
                 map = mmap.mmap(os.open('/data/map', os.O_RDWR), 4096)\n\
                 seen = map[:3]\n\
                 map[3:6] = b'two'\n\
                 with open('/data/pipe', 'w') as pipe: pipe.write('piped')\n\
                 stream.send(b'end')\n\
                 print(seen, flush=True)";
    let sandbox = spec::pod("pair", host.dir());
    let pod = client.run_pod(&sandbox).await.unwrap();
    let server = client.run(&pod, python("server", &image, serving, &data)).await.unwrap();
    let user = client.run(&pod, python("user", &image, using, &data)).await.unwrap();
    let read_only = v1::Mount { readonly: true, ..mount(&data, "/data") };
    let reader = client.run(&pod, sleeper("reader", &image, vec![read_only])).await.unwrap();
    for container in [&server, &user] {
        client.wait(container).await.unwrap();
    }
    let log = |name: &str| {
        fs::read_to_string(Path::new(&sandbox.log_directory).join(format!("{name}.log"))).unwrap()
    };
    assert!(log("server").contains("piped b'end' b'two'"), "{}", log("server"));
    assert!(log("user").contains("b'one'"), "{}", log("user"));
    // The volume outlives the container that had it first, and nobody gets more rights by it.
    client.remove(&server).await.unwrap();
    let line = "head -c 6 /data/map; echo; touch /data/new 2>&1; true";
    let seen = client.sh(&reader, line).await.unwrap();
    assert!(seen.starts_with("onetwo\n") && seen.contains("Read-only file system"), "{seen}");
    assert!(!data.join("new").exists());
    let again = client.run(&pod, sleeper("again", &image, vec![mount(&data, "/data")])).await.unwrap();
    client.sh(&again, "echo here >/data/again").await.unwrap();
    assert_eq!(client.sh(&reader, "cat /data/again").await.unwrap(), "here\n");
    client.remove_pod(&pod).await.unwrap();
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_container_started_again_has_the_volume_as_it_is_on_the_node_by_then() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let mut volumes = Volumes::new();
    let data = volumes.tmpfs("data");
    fs::write(data.join("file"), "first").unwrap();
    let pod = client.run_pod(&spec::pod("again", host.dir())).await.unwrap();
    let with_data = |name: &str| sleeper(name, &image, vec![mount(&data, "/data")]);
    let first = client.run(&pod, with_data("first")).await.unwrap();
    // As a driver that starts again does.
    umount2(&data, MntFlags::MNT_DETACH).unwrap();
    volumes.tmpfs("data");
    fs::write(data.join("file"), "second").unwrap();
    let second = client.run(&pod, with_data("second")).await.unwrap();
    assert_eq!(client.sh(&first, "cat /data/file").await.unwrap(), "first");
    assert_eq!(client.sh(&second, "cat /data/file").await.unwrap(), "second");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn images_are_mounted_as_volumes_and_impossible_mounts_are_refused_by_name() {
    let Some(host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let volumes = Volumes::new();
    let data = volumes.dir("data");
    let _socket = UnixListener::bind(volumes.path("socket")).unwrap();
    let pod = client.run_pod(&spec::pod("volumes", host.dir())).await.unwrap();

    let mounts = vec![image_volume(&image, "/all", ""), image_volume(&image, "/part", "etc")];
    let main = client.run(&pod, sleeper("main", &image, mounts)).await.unwrap();
    let line = "ls /part/passwd; /all/bin/busybox echo runs; touch /all/x /part/x 2>&1";
    let output = client.sh(&main, line).await.unwrap();
    assert!(output.starts_with("/part/passwd\nruns\n"), "{output}");
    assert_eq!(output.matches("Read-only file system").count(), 2, "{output}");
    let shown = client.status(&main).await.unwrap().mounts;
    let image_of = |mount: &v1::Mount| mount.image.clone().unwrap();
    assert!(shown.iter().all(|one| image_of(one).image == image && image_of(one).image_ref == image));
    assert_eq!(shown[1].image_sub_path, "etc");

    let bidirectional = v1::MountPropagation::PropagationBidirectional.into();
    let writable = v1::Mount { readonly: false, ..image_volume(&image, "/v", "") };
    for (number, (bad, words)) in [
        (mount(&volumes.path("socket/x"), "/d"), "/socket/x: no such file"),
        (mount(&volumes.path("socket"), "/d"), "socket of the node"),
        (v1::Mount { propagation: bidirectional, ..mount(&data, "/d") }, "cannot mount into the node"),
        (v1::Mount { recursive_read_only: true, ..mount(&data, "/d") }, "mounts.recursive_read_only"),
        (mount(&data, ""), "mounts.container_path"),
        (writable, "mounts.readonly"),
        (mount(&data, "/etc/passwd"), "cannot mount /etc/passwd: not a directory"),
        (mount(&data, "/proc/x"), "/proc/x is of the kernel's proc file system"),
        (image_volume(&image, "/v", "no/such"), "ImageVolumeMountFailed: "),
    ]
    .into_iter()
    .enumerate()
    {
        let config = sleeper(&format!("bad{number}"), &image, vec![mount(&data, "/good"), bad]);
        let error = client.create(&pod, config).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains(words), "{error}");
        assert!(!words.starts_with("Image") || error.message().starts_with(words), "{error}");
        assert_eq!(bound(&mut client, &pod).await, 0, "{error}");
    }
    client.remove_pod(&pod).await.unwrap();
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}
