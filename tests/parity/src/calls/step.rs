//! One step of a script: a call, its target, and fields. Pure.
//!
//! ```text
//! VERB [TARGET] [KEY=VALUE…] [: LINE OF SHELL]
//! ```
//! A target is a name that `run` or `create` has given. `~c` is the first 12 letters of the id, `nothing` an
//! id that nothing has, and `-` the empty text. In names of images, `@image` stands for the script's image by
//! its tag, `@digest` by its digest, `@id` for its id, and `@short` for the id's first 13 digits.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verb {
    /// RunPodSandbox. `again=P` asks for a pod with the metadata of P.
    Run,
    /// StopPodSandbox.
    StopPod,
    /// RemovePodSandbox.
    RemovePod,
    /// PodSandboxStatus.
    Pod,
    /// ListPodSandbox.
    Pods,
    /// CreateContainer.
    Create,
    /// StartContainer.
    Start,
    /// StopContainer.
    Stop,
    /// RemoveContainer.
    Remove,
    /// ContainerStatus.
    Status,
    /// ListContainers.
    Containers,
    /// ContainerStatus until the container has ended.
    Wait,
    /// ExecSync.
    Exec,
    /// UpdateContainerResources.
    Update,
    /// ReopenContainerLog.
    Reopen,
    /// ContainerStats.
    Stats,
    /// ListContainerStats.
    AllStats,
    /// PodSandboxStats.
    PodStats,
    /// ListPodSandboxStats.
    AllPodStats,
    /// Exec.
    ExecUrl,
    /// Attach.
    AttachUrl,
    /// PortForward.
    ForwardUrl,
    /// PullImage.
    Pull,
    /// ImageStatus.
    Image,
    /// ListImages.
    Images,
    /// RemoveImage.
    RemoveImage,
    /// Version.
    Version,
}

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) verb: Verb,
    /// Empty without one.
    pub(super) target: String,
    fields: BTreeMap<String, String>,
    /// A line of shell.
    pub(super) line: Option<String>,
}

impl Step {
    /// # Errors
    /// If the verb is unknown, or a word is no field.
    pub(super) fn parse(text: &str) -> Result<Step> {
        let (head, line) = match text.split_once(": ") {
            Some((head, line)) => (head, Some(line.to_owned())),
            None => (text, None),
        };
        let mut words = head.split_whitespace();
        let verb = words.next().context("a step has a verb")?;
        let verb =
            Verb::deserialize(verb.into_deserializer()).map_err(|error: Error| anyhow::anyhow!("{error}"))?;
        let (mut target, mut fields) = (String::new(), BTreeMap::new());
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => drop(fields.insert(key.to_owned(), value.to_owned())),
                None if target.is_empty() => target = word.to_owned(),
                None => bail!("{word:?} is neither a target nor a field"),
            }
        }
        Ok(Step { verb, target, fields, line })
    }

    /// A field's value.
    pub(super) fn field(&self, key: &str) -> Option<&str> {
        self.fields.get(key).map(String::as_str)
    }

    /// A field that is a number; 0 without it.
    pub(super) fn number<N: std::str::FromStr + Default>(&self, key: &str) -> Result<N> {
        let Some(text) = self.field(key) else { return Ok(N::default()) };
        text.parse().ok().with_context(|| format!("{key}={text:?} is no number"))
    }

    /// The fields `PREFIX.KEY=VALUE`, as a map.
    pub(super) fn map(&self, prefix: &str) -> BTreeMap<String, String> {
        let named = |key: &str| Some(key.strip_prefix(prefix)?.strip_prefix('.')?.to_owned());
        self.fields.iter().filter_map(|(key, value)| Some((named(key)?, value.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_a_verb_a_target_fields_and_a_line() {
        let step = Step::parse("create c in=p label.a.b=c attempt=1: echo a: b").unwrap();
        assert_eq!((step.verb, step.target.as_str()), (Verb::Create, "c"));
        assert_eq!((step.field("in"), step.line.as_deref()), (Some("p"), Some("echo a: b")));
        assert_eq!(step.map("label"), [("a.b".to_owned(), "c".to_owned())].into());
        assert_eq!((step.number::<u32>("attempt").unwrap(), step.number::<i64>("timeout").unwrap()), (1, 0));
    }

    #[test]
    fn names_of_images_keep_their_colons() {
        assert_eq!(Step::parse("pull host:5000/a:b").unwrap().target, "host:5000/a:b");
    }

    #[test]
    fn what_is_no_step_is_refused() {
        for wrong in ["", "strat c", "start c d", "create c attempt=x"] {
            let refused = Step::parse(wrong).and_then(|step| step.number::<u32>("attempt"));
            assert!(refused.is_err(), "{wrong:?}");
        }
    }
}
