//! Scripts: sequences of CRI calls to both runtimes, whose answers are compared. The table of cases asks what
//! a container finds; scripts ask what a client sees, in every state of a pod and a container. The module
//! owns the form of `cases/calls.toml` and knows no runtime.
//!
//! ```toml
//! [[script]]
//! name = "a_container_is_started_once"
//! steps = ["run p", "create c in=p: sleep 100", "start c", "start c", "status c"]
//! ```

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::case::Image;

mod names;
mod play;
mod seen;
mod step;

pub(crate) use play::run;
use step::Step;

const TEXT: &str = include_str!("../cases/calls.toml");

/// A sequence of calls.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Script {
    /// Name of the behaviour. Unique among scripts and cases.
    pub(crate) name: String,
    /// The image, if the script changes or removes it. Without it busybox.
    pub(crate) image: Image,
    /// The calls, as [`Step`] reads them.
    steps: Vec<String>,
}

impl Script {
    fn parsed(&self) -> Result<Vec<Step>> {
        let parsed = self.steps.iter().map(|line| Step::parse(line).with_context(|| format!("{line:?}")));
        parsed.collect::<Result<_>>().with_context(|| format!("script {}", self.name))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    script: Vec<Script>,
}

/// All scripts.
///
/// # Errors
/// If the file is not in its form, or two scripts have one name.
pub(crate) fn scripts() -> Result<Vec<Script>> {
    let File { script: scripts } = toml::from_str(TEXT).context("cases/calls.toml")?;
    let mut names = BTreeSet::new();
    for script in &scripts {
        ensure!(!script.name.is_empty(), "cases/calls.toml: a script has no name");
        ensure!(names.insert(&script.name), "cases/calls.toml: {} is there twice", script.name);
        ensure!(!script.parsed()?.is_empty(), "cases/calls.toml: {} has no steps", script.name);
    }
    Ok(scripts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn every_script_is_in_its_form_and_has_a_name_of_its_own() {
        let scripts = scripts().unwrap();
        let cases: BTreeSet<String> =
            table::cases().unwrap().into_iter().map(|(_, case)| case.name).collect();
        for script in &scripts {
            assert!(!cases.contains(&script.name), "a case has the name {}", script.name);
        }
    }
}
