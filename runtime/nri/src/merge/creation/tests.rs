//! Merging several plugins' adjustments at a container's creation.

use std::collections::HashMap;

use proto_nri::nri::{CDIDevice, Hook, LinuxNamespace, LinuxNetDevice, LinuxPids, OptionalInt, POSIXRlimit};

use super::*;

fn plugin(file: &str) -> PluginName {
    PluginName::of_file(file).unwrap()
}

fn creation() -> MergedCreation {
    let container = Container {
        id: "c".into(),
        args: vec!["sh".into()],
        env: vec!["A=1".into(), "B=2".into()],
        mounts: vec![mount("/m", "/host")],
        annotations: HashMap::from([("k".into(), "v".into())]),
        ..Default::default()
    };
    MergedCreation::new(CreateContainerRequest { container: Some(container).into(), ..Default::default() })
}

fn mount(destination: &str, source: &str) -> Mount {
    Mount { destination: destination.into(), source: source.into(), ..Default::default() }
}

fn variable(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.into(), value: value.into(), ..Default::default() }
}

fn add(creation: &mut MergedCreation, file: &str, adjust: ContainerAdjustment) -> Result<(), NriError> {
    let response = CreateContainerResponse { adjust: Some(adjust).into(), ..Default::default() };
    creation.add(&plugin(file), response)
}

#[test]
fn the_next_plugin_sees_what_the_ones_before_have_asked_for() {
    let mut creation = creation();
    let first = ContainerAdjustment {
        env: vec![variable("A", "9"), variable("N", "new")],
        mounts: vec![mount("/n", "/other")],
        annotations: HashMap::from([("n".into(), "w".into())]),
        args: vec!["ls".into(), "-l".into()],
        ..Default::default()
    };
    add(&mut creation, "01-a", first).unwrap();
    let seen = &creation.request.container;
    assert_eq!(seen.env, ["B=2", "A=9", "N=new"]);
    assert_eq!(seen.args, ["ls", "-l"]);
    assert_eq!(seen.mounts.iter().map(|mount| mount.destination.as_str()).collect::<Vec<_>>(), ["/m", "/n"]);
    assert_eq!(seen.annotations.len(), 2);
    let second =
        ContainerAdjustment { env: vec![variable("-N", ""), variable("N", "newer")], ..Default::default() };
    add(&mut creation, "02-b", second).unwrap();
    assert_eq!(creation.request.container.env, ["B=2", "A=9", "N=newer"]);
    let keys: Vec<_> = creation.adjustment.env.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["A", "-N", "N"], "the one that was removed is not asked for any more");
}

#[test]
fn two_plugins_that_set_the_same_are_a_conflict_in_every_field() {
    let rlimit = POSIXRlimit { type_: "RLIMIT_NOFILE".into(), ..Default::default() };
    let device = CDIDevice { name: "v.com/c=d".into(), ..Default::default() };
    let linux = |linux| ContainerAdjustment { linux: Some(linux).into(), ..Default::default() };
    let pids = LinuxPids { limit: 1, ..Default::default() };
    let resources = proto_nri::nri::LinuxResources { pids: Some(pids).into(), ..Default::default() };
    let all = [
        ContainerAdjustment { env: vec![variable("A", "")], ..Default::default() },
        ContainerAdjustment { mounts: vec![mount("/m", "")], ..Default::default() },
        ContainerAdjustment { annotations: HashMap::from([("x".into(), "y".into())]), ..Default::default() },
        ContainerAdjustment { args: vec!["x".into()], ..Default::default() },
        ContainerAdjustment { rlimits: vec![rlimit], ..Default::default() },
        ContainerAdjustment { CDI_devices: vec![device], ..Default::default() },
        linux(LinuxContainerAdjustment {
            oom_score_adj: Some(OptionalInt::new()).into(),
            ..Default::default()
        }),
        linux(LinuxContainerAdjustment { cgroups_path: "/x".into(), ..Default::default() }),
        linux(LinuxContainerAdjustment { resources: Some(resources).into(), ..Default::default() }),
        linux(LinuxContainerAdjustment {
            namespaces: vec![LinuxNamespace { type_: "ipc".into(), ..Default::default() }],
            ..Default::default()
        }),
    ];
    for adjust in all {
        let mut creation = creation();
        add(&mut creation, "01-a", adjust.clone()).unwrap();
        let error = add(&mut creation, "02-b", adjust.clone()).unwrap_err();
        assert!(matches!(&error, NriError::Conflict { .. }), "{adjust:?}: {error}");
    }
}

#[test]
fn a_plugin_that_removes_an_entry_first_may_set_it() {
    let mut creation = creation();
    let mounts = |all: &[Mount]| ContainerAdjustment { mounts: all.to_vec(), ..Default::default() };
    add(&mut creation, "01-a", mounts(&[mount("/m", "/a")])).unwrap();
    add(&mut creation, "02-b", mounts(&[mount("-/m", ""), mount("/m", "/b")])).unwrap();
    let merged: Vec<_> = creation.adjustment.mounts.iter().map(|mount| mount.source.as_str()).collect();
    assert_eq!(merged, ["", "/b"]);
    let args = |all: &[&str]| ContainerAdjustment {
        args: all.iter().map(|&word| word.to_owned()).collect(),
        ..Default::default()
    };
    add(&mut creation, "01-a", args(&["x"])).unwrap();
    add(&mut creation, "02-b", args(&["", "y", "z"])).unwrap();
    assert_eq!(creation.adjustment.args, ["y", "z"]);
}

/// An answer that removes and sets an entry in each field with entries.
fn entries(removes: bool, sets: bool) -> ContainerAdjustment {
    let keys = |key: &str| -> Vec<String> {
        let removed = removes.then(|| format!("-{key}"));
        removed.into_iter().chain(sets.then(|| key.to_owned())).collect()
    };
    let map = |key: &str| keys(key).into_iter().map(|key| (key, "v".to_owned())).collect();
    let device = |path: String| LinuxDevice { path, ..Default::default() };
    let linux = LinuxContainerAdjustment {
        devices: keys("/dev/x").into_iter().map(device).collect(),
        sysctl: map("s"),
        net_devices: keys("eth0").into_iter().map(|key| (key, LinuxNetDevice::new())).collect(),
        ..Default::default()
    };
    ContainerAdjustment {
        mounts: keys("/m").iter().map(|key| mount(key, "/h")).collect(),
        env: keys("A").iter().map(|key| variable(key, "9")).collect(),
        annotations: map("k"),
        linux: Some(linux).into(),
        ..Default::default()
    }
}

#[test]
fn what_a_plugin_only_removes_a_later_one_may_set() {
    let mut creation = creation();
    add(&mut creation, "01-a", entries(true, false)).unwrap();
    assert_eq!(creation.owners.message().owners.len(), 0, "nobody owns what nobody has set");
    assert_eq!(creation.request.container.mounts.len(), 0);
    add(&mut creation, "02-b", entries(false, true)).unwrap();
    let merged = &creation.adjustment;
    let places: Vec<_> = merged.mounts.iter().map(|mount| mount.destination.as_str()).collect();
    assert_eq!(places, ["-/m", "/m"]);
    assert_eq!((merged.annotations.len(), merged.linux.sysctl.len()), (2, 2));
    let owned = creation.owners.message().owners["c"].compound.clone();
    assert_eq!(owned.len(), 6);
    assert!(owned.values().flat_map(|field| field.owners.values()).all(|owner| owner == "02-b"), "{owned:?}");
}

#[test]
fn what_an_earlier_plugin_has_set_and_another_only_removes_is_the_others() {
    let mut creation = creation();
    add(&mut creation, "01-a", entries(false, true)).unwrap();
    add(&mut creation, "02-b", entries(true, false)).unwrap();
    let owner = |creation: &MergedCreation, field: Field, key: &str| {
        creation.owners.message().owners["c"].compound[&(field as i32)].owners[key].clone()
    };
    for (field, key) in [(Field::Mounts, "/m"), (Field::Env, "A"), (Field::Devices, "/dev/x")] {
        assert_eq!(owner(&creation, field, key), "-02-b", "{key}");
    }
    for (field, key) in [(Field::Annotations, "k"), (Field::Sysctl, "s"), (Field::LinuxNetDevices, "eth0")] {
        assert_eq!(owner(&creation, field, key), "01-a", "{key}");
    }
    assert!(add(&mut creation, "03-c", entries(false, true)).is_err());
}

#[test]
fn hooks_add_up() {
    let mut creation = creation();
    let hook = |path: &str| Hook { path: path.into(), ..Default::default() };
    for (file, path) in [("01-a", "/a"), ("02-b", "/b")] {
        let hooks = Hooks { poststart: vec![hook(path)], ..Default::default() };
        add(&mut creation, file, ContainerAdjustment { hooks: Some(hooks).into(), ..Default::default() })
            .unwrap();
    }
    assert_eq!(creation.adjustment.hooks.poststart.len(), 2);
    let owners = creation.owners.message();
    assert_eq!(owners.owners["c"].simple[&(Field::OciHooks as i32)], "01-a,02-b");
}

#[test]
fn an_answer_that_is_too_long_is_refused() {
    let long = ContainerAdjustment { env: vec![variable("A", &"x".repeat(1 << 20))], ..Default::default() };
    let error = add(&mut creation(), "01-a", long).unwrap_err();
    assert!(matches!(error, NriError::Invalid { .. }), "{error}");
}
