//! The container's first process: arguments, environment, directory, limits.

use oci_spec::runtime::{
    PosixRlimit, PosixRlimitBuilder, PosixRlimitType, Process, ProcessBuilder, UserBuilder,
};

use crate::capabilities::capabilities;
use crate::{ContainerSecurity, ContainerSpec, ImageConfig, PodSpec, SpecError};

/// Default directories for looking up programs, if neither the image nor the caller names any.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Kind of a terminal for which nobody asked for one, as in other runtimes.
pub(super) const XTERM: &str = "TERM=xterm";

/// Most open files a process may raise its limit to: high enough for servers, and within the kernel's default
/// `fs.nr_open`.
const OPEN_FILES_MAX: u64 = 1 << 20;

/// Initial limit of open files. Programs using select(2) break above it, and some close each descriptor up to
/// the limit before they start another program.
const OPEN_FILES: u64 = 1024;

pub(super) fn process(
    pod: &PodSpec,
    container: &ContainerSpec,
    image: &ImageConfig,
) -> Result<Process, SpecError> {
    let security = &container.security;
    let groups = security.supplemental_groups.iter().filter_map(|&id| u32::try_from(id).ok());
    let user = UserBuilder::default().additional_gids(groups.collect::<Vec<_>>()).build();
    let score = i32::try_from(container.resources.oom_score_adj).unwrap_or_default();
    let mut process = ProcessBuilder::default()
        .terminal(container.tty)
        .user(user.expect("every field of the user has a default"))
        .args(args(container, image)?)
        .env(env(pod, container, image))
        .cwd(cwd(container, image)?)
        .capabilities(capabilities(security)?)
        .rlimits(limits(container))
        .no_new_privileges(security.no_new_privs)
        .build()
        .expect("every field of the process has a default");
    process.set_oom_score_adj(Some(score));
    Ok(process)
}

/// The requested limits, and our limit of open files if none is requested.
fn limits(container: &ContainerSpec) -> Vec<PosixRlimit> {
    let limit = |typ, soft, hard| {
        let limit = PosixRlimitBuilder::default().typ(typ).soft(soft).hard(hard).build();
        limit.expect("all fields are set")
    };
    let asked = container.process_limits.iter();
    let mut limits: Vec<_> =
        asked.filter_map(|asked| Some(limit(limit_type(&asked.name)?, asked.soft, asked.hard))).collect();
    if !limits.iter().any(|limit| limit.typ() == PosixRlimitType::RlimitNofile) {
        limits.push(limit(PosixRlimitType::RlimitNofile, OPEN_FILES, OPEN_FILES_MAX));
    }
    limits
}

/// The limit of this name, as in `RLIMIT_NOFILE`.
pub(crate) fn limit_type(name: &str) -> Option<PosixRlimitType> {
    name.parse().ok()
}

/// The user for the agent to look up.
pub(super) fn user(security: &ContainerSecurity, image: &ImageConfig) -> String {
    let user = match (security.run_as_user, security.run_as_username.as_str()) {
        (Some(id), _) => id.to_string(),
        (None, "") => return image.user.clone(),
        (None, name) => name.to_owned(),
    };
    match security.run_as_group {
        Some(group) => format!("{user}:{group}"),
        None => user,
    }
}

/// Kubernetes' rules: a command replaces the image's entrypoint *and* cmd; args alone replace the cmd. An
/// entrypoint of one empty word counts as none: builders write it to remove a base image's.
fn args(container: &ContainerSpec, image: &ImageConfig) -> Result<Vec<String>, SpecError> {
    let entrypoint: &[String] = if image.entrypoint == [""] { &[] } else { &image.entrypoint };
    let (first, rest) = match (container.command.is_empty(), container.args.is_empty()) {
        (false, _) => (&container.command[..], &container.args),
        (true, false) => (entrypoint, &container.args),
        (true, true) => (entrypoint, &image.cmd),
    };
    let words: Vec<String> = first.iter().chain(rest).cloned().collect();
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        _ => Err(SpecError::invalid("command", "is empty, and the image names no program either")),
    }
}

/// The image's variables, overridden by the caller's, in the order of first mention.
fn env(pod: &PodSpec, container: &ContainerSpec, image: &ImageConfig) -> Vec<String> {
    let asked = container.env.iter().map(|(key, value)| format!("{key}={value}"));
    let hostname = format!("HOSTNAME={}", pod.effective_hostname());
    let mut env: Vec<String> = vec![PATH.to_owned(), hostname];
    let is_unset = |entry: &String| container.unset_env.iter().any(|key| has_key(entry, key));
    env.retain(|entry| !is_unset(entry));
    let of_image = image.env.iter().filter(|entry| !entry.contains('\0') && !is_unset(entry)).cloned();
    for entry in of_image.chain(asked) {
        let Some((key, _)) = entry.split_once('=') else { continue };
        match env.iter_mut().find(|known| has_key(known, key)) {
            Some(known) => *known = entry,
            None => env.push(entry),
        }
    }
    if container.tty && !env.iter().any(|entry| has_key(entry, "TERM")) {
        env.push(XTERM.to_owned());
    }
    env
}

pub(super) fn has_key(entry: &str, key: &str) -> bool {
    entry.strip_prefix(key).is_some_and(|rest| rest.starts_with('='))
}

/// The requested directory, else the image's, else the root.
fn cwd(container: &ContainerSpec, image: &ImageConfig) -> Result<String, SpecError> {
    let asked = [("working_dir", &container.working_dir), ("working_dir of the image", &image.working_dir)];
    let Some((field, directory)) = asked.into_iter().find(|(_, directory)| !directory.is_empty()) else {
        return Ok("/".to_owned());
    };
    if directory.starts_with('/') {
        return Ok(directory.clone());
    }
    Err(SpecError::invalid(field, format!("{directory:?} is not absolute")))
}
