//! Tests the files of `dist/` against this program. The configuration's own test is in `config/reference.rs`,
//! which generates that file.

use std::path::Path;

use clap::Parser;
use runtime_spec::{HandlerConfig, PodSpec, Resources, Shortage};

use crate::config::Config;
use crate::runtimeclass;
use crate::{Cli, Command};

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Values of `key` with this separator, one for each line with the key.
fn values<'a>(text: &'a str, key: &str, separator: char) -> Vec<&'a str> {
    let value = |line: &'a str| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then_some(value.trim())
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(value).collect()
}

/// The command started by a unit.
fn started_by(unit: &str) -> Command {
    let unit = file(unit);
    let starts = values(&unit, "ExecStart", '=');
    let [start] = starts[..] else { panic!("{starts:?}") };
    assert!(Path::new(start.split_whitespace().next().unwrap()).ends_with("podvisor"));
    Cli::try_parse_from(start.split_whitespace()).unwrap().command
}

#[test]
fn the_unit_starts_the_daemon_with_arguments_that_it_takes() {
    assert!(matches!(started_by("podvisor.service"), Command::Serve(_)));
}

#[test]
fn the_device_plugins_unit_starts_it_and_lets_it_open_kvm() {
    assert!(matches!(started_by("podvisor-device-plugin.service"), Command::DevicePlugin(_)));
    let unit = file("podvisor-device-plugin.service");
    assert_eq!(values(&unit, "DeviceAllow", '='), ["/dev/kvm rw"]);
    assert_eq!(values(&unit, "RestrictAddressFamilies", '='), ["AF_UNIX"]);
    // The kubelet may create its directory after the plugin's start. The directory must not be in a read-only
    // tree then.
    assert!(values(&unit, "ProtectSystem", '=').is_empty());
}

#[test]
fn the_unit_leaves_the_vmms_alone_when_the_daemon_stops() {
    let unit = file("podvisor.service");
    assert_eq!(values(&unit, "KillMode", '='), ["process"]);
    for removes in ["RuntimeDirectory", "StateDirectory", "PrivateTmp", "ProtectSystem"] {
        assert!(values(&unit, removes, '=').is_empty(), "{removes}");
    }
}

#[test]
fn the_unit_waits_for_the_daemon_watches_it_and_starts_it_again() {
    let unit = file("podvisor.service");
    assert_eq!(values(&unit, "Type", '='), ["notify"]);
    assert_eq!(values(&unit, "Restart", '='), ["always"]);
    // In seconds. Together with a start, it must fit into the kubelet's three minutes for a hanging runtime.
    let watchdog: u32 = values(&unit, "WatchdogSec", '=')[0].parse().unwrap();
    assert!((30..=90).contains(&watchdog), "{watchdog}");
    // The score of a VMM before its pod has containers is above.
    assert_eq!(values(&unit, "OOMScoreAdjust", '='), ["-999"]);
    assert_eq!(
        (values(&unit, "Delegate", '='), values(&unit, "TasksMax", '=')),
        (vec!["yes"], vec!["infinity"])
    );
}

#[test]
fn the_unit_reloads_the_daemon_by_the_signal_that_it_takes() {
    let unit = file("podvisor.service");
    assert_eq!(values(&unit, "ExecReload", '='), ["/bin/sh -c \"kill -HUP $MAINPID\""]);
}

#[test]
fn the_runtime_classes_are_those_that_the_program_prints_without_a_measurement() {
    let arguments = ["podvisor", "runtimeclass", "--assumed"];
    let Command::Runtimeclass(args) = Cli::try_parse_from(arguments).unwrap().command else { panic!() };
    let printed = runtimeclass::text(&Config::default(), None, &args).unwrap();
    assert!(
        file("runtimeclass.yaml") == printed,
        "make it again: cargo run -p podvisor -- runtimeclass --assumed >dist/runtimeclass.yaml; its output is\n{printed}"
    );
}

#[test]
fn the_runtime_classes_name_a_handler_that_is_there_by_default() {
    let class = file("runtimeclass.yaml");
    let (handlers, _) = Config::default().handlers();
    let names: Vec<&str> = handlers.iter().map(|handler| handler.name.as_str()).collect();
    assert_eq!(names.len(), 1);
    assert_eq!(values(&class, "handler", ':'), names.repeat(3));
}

/// A quantity of Kubernetes, in MiB.
fn mib(quantity: &str) -> i64 {
    let (number, unit) = quantity.split_at(quantity.len() - 2);
    let number: i64 = number.parse().unwrap();
    match unit {
        "Mi" => number,
        "Gi" => number << 10,
        _ => panic!("{quantity}"),
    }
}

/// A pod of a class fits into the kubelet's cgroup for it: its limit and the overhead.
#[test]
fn the_runtime_classes_have_an_overhead_that_holds_guest_and_vmm() {
    let classes = file("runtimeclass.yaml");
    let of = |key: &str| values(&classes, key, ':').into_iter().map(mib).collect::<Vec<_>>();
    let (sizes, overheads) = (of("podvisor.io/pod-memory-max"), of("memory"));
    assert_eq!((sizes.len(), overheads.len()), (3, 3));
    let bytes = |mib: i64| Some(Resources { memory_limit_bytes: mib << 20, ..Resources::default() });
    for (size, overhead) in sizes.into_iter().zip(overheads) {
        let shortage = |limit: i64| {
            let pod = PodSpec { resources: bytes(limit), overhead: bytes(overhead), ..PodSpec::default() };
            Shortage::of(&pod, &HandlerConfig::default(), u64::try_from(limit + overhead).unwrap() << 20)
        };
        assert_eq!([16, size / 4, size].map(shortage), [None; 3], "{size}");
        assert_ne!(shortage(8 * size), None, "the class says from which limit on it takes more");
    }
}
