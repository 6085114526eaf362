//! Tests that the files of `dist/` are what this program accepts. The configuration's own test is in
//! `config/reference.rs`, from which the file is made.

use std::path::Path;

use clap::Parser;
use runtime_spec::{HandlerConfig, PodSpec, Resources, VmBounds};

use crate::config::Config;
use crate::{Cli, Command};

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Values of `key` with this separator, one for each line that sets it.
fn values<'a>(text: &'a str, key: &str, separator: char) -> Vec<&'a str> {
    let value = |line: &'a str| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then_some(value.trim())
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(value).collect()
}

#[test]
fn the_unit_starts_the_daemon_with_arguments_that_it_takes() {
    let unit = file("podvisor.service");
    let starts = values(&unit, "ExecStart", '=');
    let [start] = starts[..] else { panic!("{starts:?}") };
    let cli = Cli::try_parse_from(start.split_whitespace()).unwrap();
    assert!(matches!(cli.command, Command::Serve(_)));
    assert!(Path::new(start.split_whitespace().next().unwrap()).ends_with("podvisor"));
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
fn the_runtime_class_names_a_handler_that_is_there_by_default() {
    let class = file("runtimeclass.yaml");
    let (handlers, _) = Config::default().handlers();
    let names: Vec<&str> = handlers.iter().map(|handler| handler.name.as_str()).collect();
    assert_eq!(values(&class, "handler", ':'), names);
}

/// The scheduler and the VM agree on what a pod takes, whether the overhead is sent or not.
#[test]
fn the_runtime_class_has_the_overhead_that_a_vm_gets_anyway() {
    let class = file("runtimeclass.yaml");
    let memory = values(&class, "memory", ':');
    let [memory] = memory[..] else { panic!("{memory:?}") };
    let mib: i64 = memory.strip_suffix("Mi").unwrap().parse().unwrap();
    let overhead = Resources { memory_limit_bytes: mib << 20, ..Resources::default() };
    let sent = PodSpec { overhead: Some(overhead), ..PodSpec::default() };
    let handler = HandlerConfig::default();
    assert_eq!(
        VmBounds::of(&sent, &handler).unwrap().boot,
        VmBounds::of(&PodSpec::default(), &handler).unwrap().boot
    );
}
