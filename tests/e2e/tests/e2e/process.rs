//! The environment of a container's process, and of commands joining it.

use proto_cri::v1;
use tests_e2e::kubelet_volumes::{KubeletVolumes, mounted};
use tests_e2e::wait::{until, until_seen};
use tests_e2e::{Host, spec};

/// Prints a process's view of itself, and the size of `/dev/shm` in KiB.
const LOOK: &str = "pwd; echo $GREETING; cat /proc/self/oom_score_adj; ulimit -n; ulimit -Hn; umask; \
                    df -k /dev/shm | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2";

/// Address and size of the program's variables in its table of mappings.
fn variables(maps: &str) -> (u64, u64) {
    let is_program = |line: &&str| line.contains(" rw-p ") && line.contains(" /");
    let line = maps.lines().find(is_program).unwrap_or_else(|| panic!("no variables in {maps:?}"));
    let (from, rest) = line.split_once('-').unwrap();
    let number = |hex: &str| u64::from_str_radix(hex, 16).unwrap();
    let (from, to) = (number(from), number(rest.split(' ').next().unwrap()));
    (from, to - from)
}

/// Segments of a core dump: their addresses, and their bytes in the file (ELF64, `Elf64_Phdr`).
fn segments(core: &[u8]) -> Vec<(u64, u64)> {
    let word = |at: usize| u64::from_le_bytes(core[at..at + 8].try_into().unwrap());
    let (first, count) = (word(32) as usize, usize::from(core[56]) | usize::from(core[57]) << 8);
    (0..count).map(|number| first + 56 * number).map(|at| (word(at + 16), word(at + 32))).collect()
}

#[tokio::test]
async fn a_core_dump_has_the_programs_variables() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("core", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::shell("main", &image, "exec sleep 100000")).await.unwrap();
    let line = "cd /tmp; sh -c 'ulimit -c unlimited; cat /proc/$$/maps; kill -ABRT $$'; true";
    let maps = client.sh(&container, line).await.unwrap();
    let dump = client.sh(&container, "head -c 4096 /tmp/core | od -An -v -tx1 | tr -d ' \\n'").await.unwrap();
    let core = hex::decode(dump.trim()).unwrap();
    assert_eq!(&core[..4], b"\x7fELF");
    let segments = segments(&core);
    assert!(segments.contains(&variables(&maps)), "{maps}\n{segments:x?}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_process_and_its_commands_have_the_details_asked_for() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let config = spec::pod("details", host.dir());
    let pod = client.run_pod(&config).await.unwrap();
    let line = format!("{LOOK}; echo done; exec sleep 100000");
    let mut container = spec::shell("main", &image, &line);
    container.working_dir = "/not/there/yet".into();
    container.envs = vec![v1::KeyValue { key: "GREETING".into(), value: "a  b=\"c\"".into() }];
    let linux = container.linux.as_mut().unwrap();
    linux.resources = Some(v1::LinuxContainerResources { oom_score_adj: 321, ..Default::default() });
    let id = client.run(&pod, container).await.unwrap();
    let expected = "/not/there/yet\na b=\"c\"\n321\n1024\n1048576\n0022\n65536\n";
    assert_eq!(client.sh(&id, LOOK).await.unwrap(), expected);
    let said = until_seen("the last line in the log", async || {
        let log = std::fs::read_to_string(format!("{}/main.log", config.log_directory)).unwrap();
        let texts = log.lines().map(|entry| format!("{}\n", entry.splitn(4, ' ').nth(3).unwrap_or_default()));
        let said: String = texts.collect();
        if said.ends_with("done\n") { Ok(said) } else { Err(said) }
    });
    assert_eq!(said.await, format!("{expected}done\n"));

    // A terminal is one for the process, and its output comes by one stream.
    let mut terminal =
        spec::shell("terminal", &image, "tty; test -t 0 && test -t 1 && test -t 2 && echo all >&2");
    terminal.tty = true;
    let id = client.run(&pod, terminal).await.unwrap();
    assert_eq!(client.wait(&id).await.unwrap().exit_code, 0);
    let log = std::fs::read_to_string(format!("{}/terminal.log", config.log_directory)).unwrap();
    let said: Vec<&str> = log.lines().map(|entry| entry.split_once(' ').unwrap().1).collect();
    assert_eq!(said, ["stdout F /dev/pts/0", "stdout F all"]);

    // A program with its owner's privileges: the set-user-id bit works in a container's own files.
    let line = "cp /bin/busybox /bin/asroot && chmod 4755 /bin/asroot && sleep 100000";
    let id = client.run(&pod, spec::shell("owner", &image, line)).await.unwrap();
    let options = "until [ -u /bin/asroot ]; do sleep 0.1; done; grep ' / ' /proc/self/mounts | tail -n 1";
    let options = client.sh(&id, options).await.unwrap();
    assert!(!options.contains("nosuid"), "{options}");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_reboot_in_shared_processes_ends_the_pod_with_all_its_data() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let shared = v1::NamespaceOption { pid: v1::NamespaceMode::Pod.into(), ..Default::default() };
    let mut config = spec::privileged_pod("reboots", host.dir());
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options =
        Some(shared.clone());
    let mut volumes = KubeletVolumes::of(&config).unwrap();
    let directory = volumes.disk("data", 0o777, 0).unwrap();
    let main = || {
        let sleeper = spec::container("main", &image, &["sleep", "100000"]);
        let mut main = spec::privileged(sleeper);
        main.mounts = vec![mounted(&directory, "/data")];
        let linux = main.linux.as_mut().unwrap();
        linux.security_context.as_mut().unwrap().namespace_options = Some(shared.clone());
        main
    };
    let pod = client.run_pod(&config).await.unwrap();
    let id = client.run(&pod, main()).await.unwrap();
    // Without a sync of its own. The command ends with its namespace, however that is reported.
    let _ = client.sh(&id, "echo kept > /data/file; exec busybox reboot -n -f").await;
    until("the pod to be not ready", async || {
        client.pod_status(&pod).await.unwrap().state() == v1::PodSandboxState::SandboxNotready
    })
    .await;
    assert_eq!(client.wait(&id).await.unwrap().exit_code, 137);
    client.stop_pod(&pod).await.unwrap();

    let mut next = config.clone();
    next.metadata.get_or_insert_default().attempt += 1;
    let pod = client.run_pod(&next).await.unwrap();
    let id = client.run(&pod, main()).await.unwrap();
    assert_eq!(client.sh(&id, "cat /data/file").await.unwrap(), "kept\n");
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
