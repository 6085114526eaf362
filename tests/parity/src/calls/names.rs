//! The names that a script gives to pods, containers and its image, and what each runtime calls them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use crate::side::RunningPod;

/// Digits of a shortened image id, as `crictl images` shows them.
const IMAGE_DIGITS: usize = 13;
/// Letters of a shortened id, as `crictl ps` shows them.
const ID_LETTERS: usize = 12;

/// The script's image, as the runtime knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageNames {
    /// `registry/repository:tag`.
    pub(super) tag: String,
    /// `registry/repository@sha256:…`.
    pub(super) digest: String,
    /// `sha256:…`.
    pub(super) id: String,
}

impl ImageNames {
    /// The image's name of a script, resolved.
    pub(super) fn resolve(&self, text: &str) -> String {
        let hex = self.id.trim_start_matches("sha256:");
        match text {
            "@image" => self.tag.clone(),
            "@digest" => self.digest.clone(),
            "@id" => self.id.clone(),
            "@hex" => hex.to_owned(),
            "@short" => hex.chars().take(IMAGE_DIGITS).collect(),
            "-" => String::new(),
            other => other.to_owned(),
        }
    }

    /// The opposite of [`resolve`](Self::resolve).
    pub(super) fn shown(&self, text: &str) -> String {
        let known = [(&self.tag, "@image"), (&self.digest, "@digest"), (&self.id, "@id")];
        known
            .iter()
            .find(|(name, _)| *name == text)
            .map_or_else(|| text.to_owned(), |(_, shown)| (*shown).to_owned())
    }
}

/// Names of a script.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) pods: BTreeMap<String, RunningPod>,
    pub(super) containers: BTreeMap<String, String>,
    pub(super) image: ImageNames,
    /// Names of pods and containers that the runtime has refused.
    pub(super) refused: BTreeSet<String>,
}

impl Names {
    /// The id of a target. What was refused has an id that nothing has.
    ///
    /// # Errors
    /// If the script has given no such name.
    pub(super) fn id(&self, target: &str) -> Result<String> {
        match target {
            "" | "-" => return Ok(String::new()),
            "nothing" => return Ok("0".repeat(64)),
            refused if self.refused.contains(refused.trim_start_matches('~')) => return Ok("f".repeat(64)),
            _ => {}
        }
        let name = target.trim_start_matches('~');
        let id = self.pods.get(name).map(|pod| &pod.id).or_else(|| self.containers.get(name));
        let id = id.with_context(|| format!("nothing was given the name {name:?}"))?;
        Ok(if target.starts_with('~') { id.chars().take(ID_LETTERS).collect() } else { id.clone() })
    }

    /// Notes if the runtime has made what is called so.
    pub(super) fn note(&mut self, name: &str, is_made: bool) {
        if is_made {
            self.refused.remove(name)
        } else {
            self.refused.insert(name.to_owned())
        };
    }

    /// The name of an id. `None` if it is of another script.
    pub(super) fn of(&self, id: &str) -> Option<&str> {
        let pods = self.pods.iter().map(|(name, pod)| (name, &pod.id));
        pods.chain(&self.containers).find(|(_, known)| known.as_str() == id).map(|(name, _)| name.as_str())
    }
}
