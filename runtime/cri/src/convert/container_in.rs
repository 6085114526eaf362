//! `ContainerConfig` to [`ContainerSpec`].

use proto_cri::v1;
use runtime_spec::{ContainerSpec, Device};

use super::{mount, resources, security};
use crate::error::Failure;

/// The requested container, except for its CDI devices: see [`super::cdi`].
pub(crate) fn container_spec(config: v1::ContainerConfig) -> Result<ContainerSpec, Failure> {
    let stop_signal = stop_signal(config.stop_signal)?;
    let metadata = config.metadata.ok_or_else(|| Failure::invalid("config.metadata is missing"))?;
    let image = config.image.ok_or_else(|| Failure::invalid("config.image is missing"))?;
    let linux = config.linux.unwrap_or_default();
    Ok(ContainerSpec {
        name: metadata.name,
        attempt: metadata.attempt,
        image: image.image,
        user_specified_image: image.user_specified_image,
        command: config.command,
        args: config.args,
        working_dir: config.working_dir,
        env: config.envs.into_iter().map(env).collect::<Result<_, _>>()?,
        labels: config.labels,
        annotations: config.annotations,
        log_path: (!config.log_path.is_empty()).then_some(config.log_path),
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        resources: linux.resources.map(resources::resources_in).unwrap_or_default(),
        security: security::container_security(linux.security_context)?,
        stop_signal,
        mounts: config.mounts.into_iter().map(mount::mount_in).collect::<Result<_, _>>()?,
        devices: config.devices.into_iter().map(device).collect(),
        ..ContainerSpec::default()
    })
}

fn env(pair: v1::KeyValue) -> Result<(String, String), Failure> {
    if pair.key.is_empty() || pair.key.contains(['=', '\0']) {
        return Err(Failure::invalid(format!("envs: {:?} is no name of a variable", pair.key)));
    }
    Ok((pair.key, text(&pair.value)))
}

/// Bytes as text. Each byte that is none is one U+FFFD, as in containerd's specification for runc (Go,
/// encoding/json). Secrets have such bytes, and a kubelet makes them of `$` before a letter beyond ASCII.
fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// CRI has its own signal numbers (1 is SIGABRT, 65 SIGRTMAX). The enum's names are the usual ones, except
/// `SIGRTMINPLUS3` and `SIGRTMAXMINUS3`.
fn stop_signal(value: i32) -> Result<Option<String>, Failure> {
    match v1::Signal::try_from(value) {
        Ok(v1::Signal::RuntimeDefault) => Ok(None),
        Ok(signal) => Ok(Some(signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-"))),
        Err(_) => Err(Failure::invalid(format!("stop_signal: {value} is no signal"))),
    }
}

fn device(device: v1::Device) -> Device {
    Device {
        host_path: device.host_path,
        container_path: device.container_path,
        permissions: device.permissions,
        uid: Some(0),
        gid: Some(0),
        mode: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_no_text_is_taken_as_by_containerd() {
        let value = |value: &[u8]| env(v1::KeyValue { key: "P".into(), value: value.to_vec() }).unwrap().1;
        assert_eq!(value("5€".as_bytes()), "5€");
        // `5$€` behind a kubelet's expansion.
        assert_eq!(value(b"5$\xc3\xa2\x82\xac"), "5$â\u{fffd}\u{fffd}");
        assert_eq!(value(b"\xe2\x82x"), "\u{fffd}\u{fffd}x");
    }

    #[test]
    fn every_signal_of_the_api_is_one_that_the_spec_reads() {
        for value in 1..=65 {
            let name = stop_signal(value).unwrap().unwrap();
            assert!(runtime_spec::parse_signal(&name).is_ok(), "{value} {name}");
        }
        assert!(stop_signal(66).is_err());
        assert_eq!(stop_signal(0).unwrap(), None);
    }

    #[test]
    fn a_config_without_an_image_is_refused() {
        let config =
            v1::ContainerConfig { metadata: Some(v1::ContainerMetadata::default()), ..Default::default() };
        assert_eq!(container_spec(config).unwrap_err().to_string(), "config.image is missing");
    }

    #[test]
    fn a_variable_whose_name_holds_an_equals_sign_is_refused() {
        assert!(env(v1::KeyValue { key: "a=b".into(), value: Vec::new() }).is_err());
    }
}
