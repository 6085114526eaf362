//! A fake node: a directory as its root, and a systemd with the relevant units.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode};

use crate::host::{CallError, Host};
use crate::install::{InstallError, InstallSpec, install};
use crate::kubelet_runtime::KubeletRuntime;
use crate::remove::{RemoveError, RemoveSpec, remove};
use crate::report::Step;
use crate::root::HostRoot;
use crate::settings::UnnamedPods;

/// How many changes of the node are let through before each fails, as after a kill or on a broken disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    left: Rc<Cell<Option<(u32, i32)>>>,
}

impl Gate {
    pub(crate) fn pass(&self) -> io::Result<()> {
        match self.left.get() {
            None => Ok(()),
            Some((0, errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some((left, errno)) => {
                self.left.set(Some((left - 1, errno)));
                Ok(())
            }
        }
    }

    /// Lets `count` changes through, and fails all later ones with the kernel's error.
    pub(super) fn close_after(&self, count: u32, errno: rustix::io::Errno) {
        self.left.set(Some((count, errno.raw_os_error())));
    }

    pub(super) fn open(&self) {
        self.left.set(None);
    }
}

/// The unit of a kubelet as kubeadm has it.
const KUBELET: &str =
    "# /usr/lib/systemd/system/kubelet.service\n[Service]\nExecStart=/usr/bin/kubelet $ARGS\n";

/// The shared directory of a pooled VMM.
pub(super) const WAITING: &str = "/run/podvisor/pods/waiting/shared";

/// The node's systemd.
#[derive(Debug, Default)]
pub(super) struct Systemd {
    pub(super) root: PathBuf,
    pub(super) gate: Gate,
    pub(super) loaded: RefCell<BTreeSet<String>>,
    pub(super) active: RefCell<BTreeSet<String>>,
    pub(super) enabled: RefCell<BTreeSet<String>>,
    /// Units that were started, in order.
    pub(super) started: RefCell<Vec<String>>,
    /// The kubelet's command, if it is another one.
    pub(super) kubelet_command: RefCell<String>,
    /// The command of another unit with a kubelet.
    pub(super) command: RefCell<String>,
    /// The program with which the daemon was started last; systemd has another id for each start.
    pub(super) invocation: RefCell<String>,
    /// The environment of that unit, as `systemctl show` has it.
    pub(super) environment: RefCell<String>,
    /// Whether a kubelet with Podvisor ends at once.
    pub(super) kubelet_falls: Cell<bool>,
    /// Drop-ins of the kubelet that systemd reads after ours.
    pub(super) later: RefCell<String>,
    /// The answer of the installed program to the question for its schema.
    pub(super) schema: RefCell<String>,
    /// Why the node would not be ready with the daemon.
    pub(super) not_ready: RefCell<Option<String>>,
    /// The failing line of the node's check.
    pub(super) check_fails: RefCell<Option<String>>,
}

impl Systemd {
    fn drop_in(&self) -> PathBuf {
        self.root.join("etc/systemd/system/kubelet.service.d/90-podvisor.conf")
    }

    fn failed(command: &str, said: &str) -> CallError {
        CallError::Failed { command: command.into(), status: "exit status: 1".into(), said: said.into() }
    }

    fn start(&self, unit: &str) -> Result<(), CallError> {
        self.started.borrow_mut().push(unit.to_owned());
        match unit {
            "podvisor-check.service" => self.check(),
            "podvisor-leave.service" => self.leave(),
            "podvisor.service" => {
                assert!(self.root.join("etc/systemd/system/podvisor.service").exists());
                let program = fs::read_to_string(self.root.join("opt/podvisor/bin/podvisor"));
                *self.invocation.borrow_mut() = program.unwrap_or_else(|_| "behind a link".into());
                self.active.borrow_mut().insert(unit.into());
                Ok(())
            }
            _ => {
                self.active.borrow_mut().insert(unit.into());
                Ok(())
            }
        }
    }

    fn unit(&self, name: &str) -> String {
        fs::read_to_string(self.root.join("run/systemd/system").join(name)).unwrap()
    }

    fn check(&self) -> Result<(), CallError> {
        assert!(self.unit("podvisor-check.service").contains("ExecStart=/opt/podvisor/bin/podvisor check\n"));
        let failing = self.check_fails.borrow().clone();
        let log = format!("ok    user: root\n{}", failing.clone().unwrap_or_default());
        fs::write(self.root.join("run/podvisor-check.log"), log).unwrap();
        failing.map_or(Ok(()), |_| Err(Self::failed("systemctl start podvisor-check.service", "failed")))
    }

    /// Carries out the unit's lines, as systemd does: to the end, regardless of callers.
    fn leave(&self) -> Result<(), CallError> {
        let unit = self.unit("podvisor-leave.service");
        let lines = |key: &str| {
            let prefix = format!("{key}=");
            unit.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut outcome = Ok(());
        for line in lines("ExecStart") {
            outcome = self.line(&line);
            if outcome.is_err() {
                break;
            }
        }
        lines("ExecStopPost").iter().try_for_each(|line| self.line(line)).unwrap();
        outcome
    }

    fn line(&self, line: &str) -> Result<(), CallError> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["systemctl", "stop", unit] => {
                self.active.borrow_mut().remove(unit);
            }
            ["systemctl", "--no-block", "start", unit] => self.start(unit)?,
            ["systemctl", "daemon-reload"] => {}
            ["rm", "-f", path] => {
                let _ = fs::remove_file(self.root.join(path.trim_start_matches('/')));
            }
            ["/opt/podvisor/bin/podvisor", "node", "end-pods", ref force @ ..] => {
                return self.end_pods(!force.is_empty());
            }
            _ => panic!("{line}"),
        }
        Ok(())
    }

    /// The text of a distribution's unit, with the drop-in of the switch if it is there.
    fn other_unit(&self, unit: &str) -> String {
        let command = self.command.borrow();
        if command.is_empty() {
            return String::new();
        }
        let ours = format!("etc/systemd/system/{unit}.d/90-podvisor.conf");
        let text = fs::read_to_string(self.root.join(&ours)).unwrap_or_default();
        format!("# /etc/systemd/system/{unit}\n[Service]\nExecStart={command}\n# /{ours}\n{text}")
    }

    fn end_pods(&self, force: bool) -> Result<(), CallError> {
        let kubelet = self.active.borrow().contains("kubelet.service");
        assert!(!kubelet || !self.drop_in().exists(), "the kubelet would start the pods anew");
        let vms: Vec<PathBuf> = fs::read_dir(self.root.join("proc"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "podvisor-vmm\n"))
            .filter(|path| {
                fs::read_to_string(path.join("cgroup")).map_or(true, |of| !of.contains("unclaimed"))
            })
            .collect();
        if !vms.is_empty() && !force {
            fs::write(self.root.join("run/podvisor-leave.log"), "podvisor: a VM runs\n").unwrap();
            return Err(Self::failed("systemctl start podvisor-leave.service", "failed"));
        }
        vms.iter().for_each(|vm| fs::remove_dir_all(vm).unwrap());
        Ok(())
    }

    /// Unmounts the daemon's own mounts, as it does when it stops: here those of [`WAITING`].
    fn end_waiting_vmms(&self) {
        let path = self.root.join("proc/1/mountinfo");
        let Ok(mounts) = fs::read_to_string(&path) else { return };
        let left = mounts.lines().filter(|line| !line.contains(WAITING)).map(|line| format!("{line}\n"));
        fs::write(path, left.collect::<String>()).unwrap();
    }

    fn show(&self, property: &str, unit: &str) -> String {
        let active = self.active.borrow().contains(unit);
        let state = if active { "active" } else { "inactive" };
        match property {
            "--property=LoadState" if self.loaded.borrow().contains(unit) => "loaded\n".into(),
            "--property=LoadState" => "not-found\n".into(),
            "--property=ActiveState" => format!("{state}\n"),
            "--property=ActiveState,NRestarts" if self.kubelet_falls.get() && self.drop_in().exists() => {
                "ActiveState=activating\nNRestarts=1\n".into()
            }
            "--property=ActiveState,NRestarts" => format!("ActiveState={state}\nNRestarts=0\n"),
            "--property=InvocationID" => self.invocation.borrow().clone(),
            "--property=Environment,EnvironmentFiles" => self.environment.borrow().clone(),
            _ => panic!("{property}"),
        }
    }
}

impl Host for Systemd {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, CallError> {
        if program == "/opt/podvisor/bin/podvisor" {
            return match arguments {
                ["schema"] => Ok(self.schema.borrow().clone()),
                ["node", "ready"] => {
                    assert!(self.active.borrow().contains("podvisor.service"));
                    let why = self.not_ready.borrow();
                    why.as_ref()
                        .map_or(Ok(String::new()), |why| Err(Self::failed("podvisor node ready", why)))
                }
                _ => panic!("{arguments:?}"),
            };
        }
        assert_eq!(program, "systemctl");
        let shown = arguments.join(" ");
        match arguments {
            ["show", property, "--value", unit] | ["show", property, unit] => {
                return Ok(self.show(property, unit));
            }
            ["cat", unit] => {
                let ours = fs::read_to_string(self.drop_in()).unwrap_or_default();
                let head = "# /etc/systemd/system/kubelet.service.d/90-podvisor.conf\n";
                return Ok(match *unit {
                    "kubelet.service" => {
                        let command = self.kubelet_command.borrow();
                        let own = match command.as_str() {
                            "" => KUBELET.to_owned(),
                            command => KUBELET.replace("/usr/bin/kubelet $ARGS", command),
                        };
                        format!("{own}{head}{ours}{}", self.later.borrow())
                    }
                    _ => self.other_unit(unit),
                });
            }
            _ => {}
        }
        self.gate.pass().map_err(|source| CallError::Start { command: shown.clone(), source })?;
        match arguments {
            ["daemon-reload"] => {}
            ["enable", unit] => {
                self.enabled.borrow_mut().insert((*unit).into());
            }
            ["disable", "--now", unit] => {
                self.enabled.borrow_mut().remove(*unit);
                self.active.borrow_mut().remove(*unit);
                if *unit == "podvisor.service" {
                    self.end_waiting_vmms();
                }
            }
            ["try-restart", unit] => assert!(!self.active.borrow().contains(*unit)),
            ["start" | "restart", unit] => self.start(unit)?,
            _ => panic!("{shown}"),
        }
        Ok(String::new())
    }
}

/// A node, and the files to install on it.
pub(super) struct Node {
    pub(super) directory: tempfile::TempDir,
    pub(super) root: HostRoot,
    pub(super) systemd: Systemd,
    pub(super) spec: InstallSpec,
}

/// Paths, each with a mode and a content or a link's target.
pub(super) type Files = BTreeMap<PathBuf, (u32, Vec<u8>)>;

impl Node {
    /// A node made by kubeadm, with containerd.
    pub(super) fn new() -> Node {
        let directory = tempfile::tempdir().unwrap();
        let (host, image) = (directory.path().join("host"), directory.path().join("image"));
        for path in [
            "run/systemd/system",
            "run/containerd",
            "dev",
            "proc/1",
            "proc/40",
            "etc/systemd/system",
            "var/lib/kubelet",
            "opt",
        ] {
            fs::create_dir_all(host.join(path)).unwrap();
        }
        // The only device node an unprivileged user may make.
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(CWD, host.join("dev/kvm"), FileType::CharacterDevice, mode, 0).unwrap();
        fs::write(host.join("run/containerd/containerd.sock"), "").unwrap();
        let kubelet = "kubelet\0--config=/var/lib/kubelet/config.yaml\0";
        let config =
            "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n";
        for (path, text) in [
            ("proc/1/comm", "systemd\n"),
            ("proc/1/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"),
            ("proc/40/comm", "kubelet\n"),
            ("proc/40/cmdline", kubelet),
            ("var/lib/kubelet/config.yaml", config),
        ] {
            fs::write(host.join(path), text).unwrap();
        }
        let root = HostRoot::open(&host).unwrap();
        let systemd = Systemd { root: host, gate: root.gate.clone(), ..Systemd::default() };
        for units in [&systemd.loaded, &systemd.active] {
            units.borrow_mut().insert("kubelet.service".into());
        }
        let spec = InstallSpec {
            from: image,
            upstream: None,
            handlers: vec!["runc".into()],
            unnamed_pods: UnnamedPods::All,
            schema: 2,
            switch_kubelet: true,
            again: true,
            between_looks: Duration::ZERO,
        };
        let node = Node { directory, root, systemd, spec };
        node.payload("first");
        node
    }

    /// Makes the files of a build, as `make install DESTDIR= PREFIX=/opt/podvisor` does.
    pub(super) fn payload(&self, build: &str) {
        let image = &self.spec.from;
        let _ = fs::remove_dir_all(image);
        let mut template = vec![0; 200 << 10];
        template[100 << 10] = 1;
        let units = "opt/podvisor/lib/systemd/system";
        for (path, mode, content) in [
            ("opt/podvisor/bin/podvisor".to_owned(), 0o755, format!("podvisor {build}").into_bytes()),
            ("opt/podvisor/bin/podvisor-vmm".into(), 0o755, b"vmm".to_vec()),
            (format!("opt/podvisor/share/{build}"), 0o644, b"page".to_vec()),
            ("opt/podvisor/lib/podvisor/scratch.ext4".into(), 0o644, template),
            (format!("{units}/podvisor.service"), 0o644, b"[Service]".to_vec()),
            (format!("{units}/podvisor-device-plugin.service"), 0o644, b"[Service]".to_vec()),
            (
                "etc/podvisor/config.toml".into(),
                0o644,
                include_bytes!("../../../../dist/config.toml").to_vec(),
            ),
        ] {
            let path = image.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.systemd.root.join(path)
    }

    pub(super) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// A process of the node.
    pub(super) fn process(&self, pid: u32, name: &str, arguments: &str) {
        let place = self.path(&format!("proc/{pid}"));
        fs::create_dir(&place).unwrap();
        fs::write(place.join("comm"), format!("{name}\n")).unwrap();
        fs::write(place.join("cmdline"), arguments).unwrap();
    }

    /// Installs, and returns the lines of the steps.
    pub(super) fn install(&self) -> Result<Vec<String>, InstallError> {
        let mut lines = Vec::new();
        let mut report = |step: Step| lines.push(step.to_string());
        install(&self.root, &self.systemd, &self.spec, &mut report).map(|_| lines)
    }

    /// Installs, and returns the kubelet's runtime.
    pub(super) fn install_beside_kubelet(&self) -> KubeletRuntime {
        install(&self.root, &self.systemd, &self.spec, &mut |_| {}).unwrap()
    }

    pub(super) fn remove(&self, force: bool, purge: bool) -> Result<(), RemoveError> {
        remove(&self.root, &self.systemd, RemoveSpec { force, purge }, &mut |_| {})
    }

    /// Everything on the node but processes, and but the installation's own record where `record` is false.
    pub(super) fn files(&self, record: bool) -> Files {
        let mut files = Files::new();
        walk(&self.systemd.root, &self.systemd.root, &mut files);
        files.retain(|path, _| {
            !path.starts_with("proc") && (record || !path.starts_with("var/lib/podvisor-node"))
        });
        files
    }

    pub(super) fn is_running(&self, unit: &str) -> bool {
        self.systemd.active.borrow().contains(unit)
    }
}

fn walk(root: &Path, directory: &Path, files: &mut Files) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_dir() {
            walk(root, &path, files);
            Vec::new()
        } else if metadata.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if metadata.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        files.insert(path.strip_prefix(root).unwrap().to_owned(), (metadata.permissions().mode(), content));
    }
}
