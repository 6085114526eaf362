//! Contradictions in a configuration with valid keys and types. Nothing here reads the host.

use std::ops::RangeInclusive;
use std::path::{Component, Path};

use runtime_spec::TemplateScope;

use super::{Config, Handler, UnnamedPods, Upstream, filter, tenancy};

/// Maximum number of handlers of a node. Each has a RuntimeClass, and no cluster needs so many. Status lists
/// all of them.
const HANDLERS_MAX: usize = 128;

/// Maximum number of sockets of one handler. A node has a few agents, and each socket is searched for behind
/// each mount of a container.
const HOST_SOCKETS_MAX: usize = 16;

/// Maximum number of spare VMs of one handler. Each takes about ten MiB.
const SPARE_VMS_MAX: u8 = 64;

/// Numbers of vCPUs of a VM.
const VCPUS: RangeInclusive<u8> = 1..=64;

/// A contradiction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contradiction {
    /// One of its keys, as in `paths.state` and `handler[0].name`.
    pub(super) key: String,
    /// The contradiction, for people.
    pub(super) message: String,
}

fn contradiction(key: impl Into<String>, message: impl Into<String>) -> Contradiction {
    Contradiction { key: key.into(), message: message.into() }
}

/// Checks everything.
///
/// # Errors
/// The first contradiction.
pub(super) fn check(config: &Config) -> Result<(), Contradiction> {
    filter::check(&config.log.level).map_err(|why| contradiction("log.level", why))?;
    check_handlers(config)?;
    let pinned = runtime_image::Pinned::parse(&config.registries.pinned);
    pinned.map_err(|wrong| contradiction("registries.pinned", wrong.to_string()))?;
    check_upstream(config)?;
    if config.streaming.certificate.is_some() != config.streaming.key.is_some() {
        let set = if config.streaming.key.is_some() { "streaming.key" } else { "streaming.certificate" };
        let message = "streaming.certificate and streaming.key go together, and only one is set";
        return Err(contradiction(set, message));
    }
    if let Some((key, message)) = config.nri.wrong() {
        return Err(contradiction(key, message));
    }
    if let Some((key, message)) = tenancy::wrong(config) {
        return Err(contradiction(key, message));
    }
    config.traces.resolved().map_err(|wrong| contradiction(wrong.key, wrong.message))?;
    Ok(())
}

fn check_handlers(config: &Config) -> Result<(), Contradiction> {
    if config.handler.len() > HANDLERS_MAX {
        let key = format!("handler[{HANDLERS_MAX}].name");
        return Err(contradiction(key, format!("there are more than {HANDLERS_MAX} handlers")));
    }
    for (index, handler) in config.handler.iter().enumerate() {
        let key = || format!("handler[{index}].name");
        if handler.name.is_empty() {
            return Err(contradiction(key(), format!("handler {index} has an empty name")));
        }
        if config.handler[..index].iter().any(|other| other.name == handler.name) {
            return Err(contradiction(key(), format!("handler {:?} is there twice", handler.name)));
        }
        if let Some(sum_mib) = handler.scratch_sum_mib.filter(|sum_mib| *sum_mib < handler.scratch_mib) {
            let message = format!(
                "no pod's scratch disk of {} MiB (scratch_mib) fits into {sum_mib} MiB",
                handler.scratch_mib
            );
            return Err(contradiction(format!("handler[{index}].scratch_sum_mib"), message));
        }
        check_size(index, handler)?;
        check_spares(index, handler)?;
        check_host_sockets(index, handler)?;
    }
    let mut defaults = config.handler.iter().enumerate().filter(|(_, handler)| handler.default).skip(1);
    match defaults.next() {
        Some((index, _)) => {
            let message = "more than one handler says default = true";
            Err(contradiction(format!("handler[{index}].default"), message))
        }
        None => Ok(()),
    }
}

fn check_size(index: usize, handler: &Handler) -> Result<(), Contradiction> {
    let wrong = |key: &str, message: String| Err(contradiction(format!("handler[{index}].{key}"), message));
    if let Some(vcpus) = handler.vcpus_max.filter(|vcpus| !VCPUS.contains(vcpus)) {
        return wrong(
            "vcpus_max",
            format!("a VM has {} to {} vCPUs, not {vcpus}", VCPUS.start(), VCPUS.end()),
        );
    }
    match handler.memory_max_mib {
        Some(most) if most < handler.memory_mib => {
            let message = format!("no pod of {} MiB (memory_mib) fits into {most} MiB", handler.memory_mib);
            wrong("memory_max_mib", message)
        }
        _ => Ok(()),
    }
}

fn check_spares(index: usize, handler: &Handler) -> Result<(), Contradiction> {
    let wrong = |message: String| Err(contradiction(format!("handler[{index}].spare_vms"), message));
    if handler.spare_vms > SPARE_VMS_MAX {
        return wrong(format!("{} VMs are more than {SPARE_VMS_MAX}", handler.spare_vms));
    }
    if handler.spare_vms > 0 && handler.template == TemplateScope::Off {
        return wrong("spare VMs are started from a template, and template = \"off\"".into());
    }
    Ok(())
}

fn check_host_sockets(index: usize, handler: &Handler) -> Result<(), Contradiction> {
    let sockets = &handler.host_sockets;
    let wrong = |message: String| Err(contradiction(format!("handler[{index}].host_sockets"), message));
    if sockets.len() > HOST_SOCKETS_MAX {
        return wrong(format!("there are more than {HOST_SOCKETS_MAX} sockets"));
    }
    for (place, socket) in sockets.iter().enumerate() {
        let name = socket.display();
        if !socket.is_absolute() || socket.file_name().is_none() {
            return wrong(format!("{name} is no absolute path of a socket"));
        }
        // Written exactly as on the node, so the name cannot mislead.
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !Path::components(socket).all(plain) || name.to_string().contains("/./") {
            return wrong(format!("{name} has . or .. in it"));
        }
        if sockets[..place].contains(socket) {
            return wrong(format!("{name} is there twice"));
        }
    }
    Ok(())
}

/// Checks the settings for another runtime against the handlers.
fn check_upstream(config: &Config) -> Result<(), Contradiction> {
    let Upstream { socket: Some(_), handlers, unnamed_pods } = &config.upstream else { return Ok(()) };
    for (index, name) in handlers.iter().enumerate() {
        let wrong = |message: String| Err(contradiction("upstream.handlers", message));
        if name.is_empty() {
            return wrong(
                "upstream.handlers has an empty name; pods without a name are unnamed_pods' matter".into(),
            );
        }
        let vms = config.handlers().0;
        if handlers[..index].contains(name) || vms.iter().any(|handler| handler.name == *name) {
            return wrong(format!("handler {name:?} is there twice"));
        }
    }
    if *unnamed_pods == UnnamedPods::All && config.handler.iter().any(|handler| handler.default) {
        let message = "a handler says default = true, and upstream.unnamed_pods is \"all\"";
        return Err(contradiction("upstream.unnamed_pods", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{CgroupDriver, ConfigError, file};
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        file::parse(Path::new("/etc/podvisor/config.toml"), text).map(|loaded| loaded.config)
    }

    fn message(text: &str) -> String {
        format!("{:#}", anyhow::Error::from(parse(text).unwrap_err()))
    }

    #[test]
    fn an_unknown_key_is_refused_with_file_line_and_name() {
        let message = message("[paths]\nstate = \"/x\"\nstaet = \"/y\"\n");
        assert!(message.contains("/etc/podvisor/config.toml"), "{message}");
        assert!(message.contains("line 3") && message.contains("staet"), "{message}");
    }

    #[test]
    fn there_are_not_more_handlers_than_anybody_can_choose_from() {
        let handlers = |count: usize| -> String {
            (0..count).map(|number| format!("[[handler]]\nname = \"h{number}\"\n")).collect()
        };
        parse(&handlers(HANDLERS_MAX)).unwrap();
        let message = message(&handlers(HANDLERS_MAX + 1));
        assert!(message.contains("line 258: handler[128].name: there are more than 128"), "{message}");
    }

    #[test]
    fn a_handlers_bounds_are_those_of_a_vm_and_hold_its_own_pods() {
        for (bounds, why) in [
            ("vcpus_max = 0", "handler[0].vcpus_max: a VM has 1 to 64 vCPUs, not 0"),
            ("vcpus_max = 65", "a VM has 1 to 64 vCPUs, not 65"),
            ("memory_mib = 512\nmemory_max_mib = 511", "no pod of 512 MiB (memory_mib) fits into 511 MiB"),
        ] {
            let message = message(&format!("[[handler]]\n{bounds}\n"));
            assert!(message.contains(why), "{message}");
        }
        parse("[[handler]]\nvcpus_max = 64\nmemory_mib = 512\nmemory_max_mib = 512\n").unwrap();
    }

    #[test]
    fn a_handler_that_is_there_twice_is_refused() {
        let message = message("[[handler]]\nname = \"a\"\n[[handler]]\nname = \"a\"\n");
        assert!(message.contains("\"a\" is there twice"), "{message}");
    }

    #[test]
    fn sockets_of_the_node_are_named_by_plain_absolute_paths() {
        let sockets = |list: &str| format!("[[handler]]\nhost_sockets = [{list}]\n");
        let config = parse(&sockets("\"/run/a.sock\", \"/run/b.sock\"")).unwrap();
        assert_eq!(config.handler[0].host_sockets.len(), 2);
        let many: Vec<_> = (0..=HOST_SOCKETS_MAX).map(|number| format!("\"/run/{number}\"")).collect();
        for (list, why) in [
            ("\"run/a.sock\"", "run/a.sock is no absolute path"),
            ("\"/\"", "/ is no absolute path of a socket"),
            ("\"/run/../a.sock\"", "/run/../a.sock has . or .. in it"),
            ("\"/run/./a.sock\"", "/run/./a.sock has . or .. in it"),
            ("\"/run/a\", \"/run/a\"", "/run/a is there twice"),
            (&many.join(", "), "there are more than 16 sockets"),
        ] {
            let message = message(&sockets(list));
            assert!(message.contains("handler[0].host_sockets") && message.contains(why), "{message}");
        }
    }

    #[test]
    fn what_contradicts_the_handlers_of_vms_is_refused() {
        let upstream = |rest: &str| format!("[upstream]\nsocket = \"/c\"\n{rest}\n");
        for (text, why) in [
            (upstream("handlers = [\"podvisor\"]"), "\"podvisor\" is there twice"),
            (upstream("handlers = [\"a\", \"a\"]"), "\"a\" is there twice"),
            (upstream("handlers = [\"\"]"), "an empty name"),
            (upstream("unnamed_pods = \"some\""), "none"),
            (upstream("unnamed_pods = \"all\"\n[[handler]]\ndefault = true"), "says default = true"),
        ] {
            let message = message(&text);
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn a_cgroup_driver_that_is_none_is_refused_with_those_that_are() {
        let config = parse("[cgroup]\ndriver = \"cgroupfs\"\n").unwrap();
        assert_eq!(config.cgroup.driver, Some(CgroupDriver::Cgroupfs));
        let message = message("[cgroup]\ndriver = \"runc\"\n");
        assert!(message.contains("systemd") && message.contains("cgroupfs"), "{message}");
    }

    #[test]
    fn a_pinned_image_has_a_name() {
        assert_eq!(
            parse("[registries]\npinned = [\"busybox\", \"r.example/a*\"]\n")
                .unwrap()
                .registries
                .pinned
                .len(),
            2
        );
        let message = message("[registries]\npinned = [\"*\"]\n");
        assert!(message.contains("registries.pinned") && message.contains("\"*\""), "{message}");
    }

    #[test]
    fn a_certificate_and_its_key_go_together() {
        let both = "[streaming]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"\n";
        let tls = parse(both).unwrap().streaming.tls().unwrap();
        assert_eq!((tls.certificate, tls.key), ("/c.pem".into(), "/k.pem".into()));
        assert!(parse("").unwrap().streaming.tls().is_none());
        for key in ["certificate", "key"] {
            let message = message(&format!("[streaming]\n{key} = \"/x.pem\"\n"));
            assert!(message.contains("streaming.certificate and streaming.key go together"), "{message}");
        }
    }
}
