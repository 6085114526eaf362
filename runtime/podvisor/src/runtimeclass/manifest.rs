//! RuntimeClasses in the API server's form (`node.k8s.io/v1`), as YAML with comments or as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, anyhow, bail};
use serde::Serialize;

use super::args::Args;
use super::figures::Figures;
use super::names;
use super::quantity::quantity;
use super::toleration::Toleration;
use crate::config::Handler;

const GIB: u64 = 1 << 30;

/// Default sizes of the classes, in bytes.
const SIZES: [u64; 3] = [512 << 20, 4 * GIB, 32 * GIB];

/// Columns of a comment.
const COLUMNS: usize = 100;

/// Annotation with the largest memory of a class' pods.
const SIZE: &str = "podvisor.io/pod-memory-max";

/// Annotation with the origin of the overhead.
const ORIGIN: &str = "podvisor.io/overhead";

/// All classes, the one for the smallest pods first.
#[derive(Debug)]
pub(super) struct Manifests {
    classes: Vec<(u64, RuntimeClass)>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuntimeClass {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    handler: String,
    overhead: Overhead,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduling: Option<Scheduling>,
}

#[derive(Debug, Serialize)]
struct Metadata {
    name: String,
    annotations: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Overhead {
    pod_fixed: BTreeMap<&'static str, String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Scheduling {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tolerations: Vec<Toleration>,
}

impl Manifests {
    /// The classes for the arguments.
    ///
    /// # Errors
    /// The handler allows no VM of a given size, or of any size. Or a name is too long with its size.
    pub(super) fn of(args: &Args, handler: &Handler, figures: &Figures) -> anyhow::Result<Manifests> {
        let mut sizes = sizes(&args.up_to, handler, figures)?;
        sizes.sort_unstable();
        sizes.dedup();
        let scheduling = scheduling(args);
        let classes = sizes.iter().enumerate().map(|(number, size)| {
            let name = match number {
                0 => args.name.clone(),
                _ => format!("{}-{}", args.name, quantity(*size).to_ascii_lowercase()),
            };
            names::subdomain(&name).map_err(|why| anyhow!("the name {name}: {why}"))?;
            let origin = if figures.is_measured() { "measured" } else { "assumed" };
            let class = RuntimeClass {
                api_version: "node.k8s.io/v1",
                kind: "RuntimeClass",
                metadata: Metadata {
                    name,
                    annotations: BTreeMap::from([(SIZE, quantity(*size)), (ORIGIN, origin.into())]),
                },
                handler: handler.name.clone(),
                overhead: Overhead {
                    pod_fixed: BTreeMap::from([("memory", quantity(figures.overhead_bytes(*size)))]),
                },
                scheduling: scheduling.clone(),
            };
            Ok((*size, class))
        });
        Ok(Manifests { classes: classes.collect::<anyhow::Result<_>>()? })
    }

    /// The sizes of the classes, in bytes.
    pub(super) fn sizes(&self) -> Vec<u64> {
        self.classes.iter().map(|(size, _)| *size).collect()
    }

    /// A document for each class. Comments describe its pods and the origin of its overhead.
    pub(super) fn yaml(&self, figures: &Figures) -> anyhow::Result<String> {
        let mut text = String::new();
        let mut said = vec![
            "RuntimeClasses of Podvisor, as `podvisor runtimeclass` prints them. The overhead is the memory that a pod takes \
             beside its containers' limits; the scheduler counts it, and the kubelet adds it to the limit of the pod's cgroup. \
             Each class is for pods up to a size, the sum of their containers' limits: larger ones have VMs that are made to \
             fit, in which containers do not reach their limits."
                .to_owned(),
        ];
        said.extend(figures.origin());
        said.extend(figures.warnings(&self.sizes()));
        said.extend(self.nodes());
        said.iter().for_each(|paragraph| comment(&mut text, paragraph));
        for (number, (size, class)) in self.classes.iter().enumerate() {
            if number > 0 {
                text.push_str("---\n");
            }
            comment(&mut text, &format!("Pods of up to {}.", quantity(*size)));
            text.push_str(serde_saphyr::to_string(class).context("writing YAML")?.trim_end());
            text.push('\n');
        }
        Ok(text)
    }

    /// Describes the nodes for the scheduler.
    fn nodes(&self) -> Option<String> {
        let selector = &self.classes.first()?.1.scheduling.as_ref()?.node_selector;
        let labels: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let labels = labels.join(" ");
        (!labels.is_empty()).then(|| {
            format!("Pods go to nodes with Podvisor, which you label: kubectl label node NODE {labels}")
        })
    }

    /// One list, as input for kubectl.
    pub(super) fn json(&self) -> anyhow::Result<String> {
        let items: Vec<&RuntimeClass> = self.classes.iter().map(|(_, class)| class).collect();
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": items });
        Ok(serde_json::to_string_pretty(&list).context("writing JSON")? + "\n")
    }
}

/// The given sizes, or else those of [`SIZES`] allowed by the handler. The VM of a pod of the class has its
/// size and the overhead, with the page structures of both.
fn sizes(named: &[u64], handler: &Handler, figures: &Figures) -> anyhow::Result<Vec<u64>> {
    let most = handler.memory_max_mib.map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20));
    let vm = |size: u64| {
        let needed = size.saturating_add(figures.overhead_bytes(size));
        needed.saturating_add(needed / 63).saturating_add(runtime_spec::MEMORY_GRAIN)
    };
    let asked = if named.is_empty() { &SIZES[..] } else { named };
    let (allowed, beyond): (Vec<u64>, Vec<u64>) = asked.iter().partition(|size| vm(**size) <= most);
    match beyond.first() {
        Some(size) if !named.is_empty() || allowed.is_empty() => bail!(
            "a pod of {} needs a VM of {} MiB, and the handler {} allows {} MiB; name a smaller size with --up-to",
            quantity(*size),
            vm(*size).div_ceil(1 << 20),
            handler.name,
            most >> 20
        ),
        _ => Ok(allowed),
    }
}

fn scheduling(args: &Args) -> Option<Scheduling> {
    let labels = if args.any_node { &[][..] } else { &args.node_selector };
    let node_selector: BTreeMap<String, String> = labels.iter().cloned().collect();
    let tolerations = args.toleration.clone();
    (!node_selector.is_empty() || !tolerations.is_empty())
        .then_some(Scheduling { node_selector, tolerations })
}

/// Adds a paragraph as lines of comment.
fn comment(text: &mut String, paragraph: &str) {
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        if column == 0 || column + 1 + word.len() > COLUMNS {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}# {word}", if column == 0 { "" } else { "\n" });
            column = 2 + word.len();
        } else {
            let _ = write!(text, " {word}");
            column += 1 + word.len();
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command};

    fn manifests(arguments: &[&str], handler: &Handler) -> anyhow::Result<Manifests> {
        let all = ["podvisor", "runtimeclass"].iter().chain(arguments);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Runtimeclass(args) => Manifests::of(&args, handler, &Figures::assumed()),
            other => panic!("{other:?}"),
        }
    }

    fn json(arguments: &[&str]) -> serde_json::Value {
        let text = manifests(arguments, &Handler::default()).unwrap().json().unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn each_size_has_a_class_of_its_own_with_a_larger_overhead() {
        let list = json(&["--up-to", "4g", "--up-to", "512m", "--up-to", "4096m", "--name", "vm"]);
        let items = list["items"].as_array().unwrap();
        let of =
            |path: &str| items.iter().map(|item| item.pointer(path).unwrap().clone()).collect::<Vec<_>>();
        assert_eq!(of("/metadata/name"), ["vm", "vm-4gi"]);
        assert_eq!(of("/handler"), ["podvisor"; 2]);
        assert_eq!(of("/overhead/podFixed/memory"), ["84Mi", "156Mi"]);
        assert_eq!(of("/scheduling/nodeSelector/podvisor.io~1runtime"), ["true"; 2]);
        assert_eq!(items[1]["metadata"]["annotations"][SIZE], "4Gi");
        assert_eq!((&list["kind"], &items[0]["apiVersion"]), (&"List".into(), &"node.k8s.io/v1".into()));
    }

    #[test]
    fn a_class_for_any_node_has_no_scheduling_but_what_was_asked_for() {
        assert_eq!(json(&["--any-node"])["items"][0].get("scheduling"), None);
        let tolerant = json(&["--any-node", "--toleration", "vm:NoSchedule"]);
        let scheduling = &tolerant["items"][0]["scheduling"];
        assert_eq!(scheduling.get("nodeSelector"), None);
        assert_eq!(scheduling["tolerations"][0]["operator"], "Exists");
    }

    #[test]
    fn a_size_that_the_handler_does_not_allow_is_refused_or_left_out() {
        let small = Handler { memory_max_mib: Some(1024), ..Handler::default() };
        assert_eq!(manifests(&[], &small).unwrap().sizes(), [512 << 20]);
        let named = manifests(&["--up-to", "1g"], &small).unwrap_err().to_string();
        assert!(named.contains("a pod of 1Gi needs a VM of 1"), "{named}");
        assert!(named.contains("the handler podvisor allows 1024 MiB"), "{named}");
        let tiny = Handler { memory_max_mib: Some(256), ..Handler::default() };
        assert!(manifests(&[], &tiny).unwrap_err().to_string().contains("--up-to"));
    }

    #[test]
    fn a_name_that_is_too_long_with_its_size_is_refused() {
        let name = "a".repeat(62);
        let refused = manifests(&["--name", &name], &Handler::default()).unwrap_err().to_string();
        assert!(refused.contains("-4gi") && refused.contains("63"), "{refused}");
        manifests(&["--name", &name, "--up-to", "512m"], &Handler::default()).unwrap();
    }

    #[test]
    fn a_document_is_yaml_that_keeps_strings_strings() {
        let manifests =
            manifests(&["--node-selector", "a=true", "--node-selector", "b=1.0"], &Handler::default());
        let yaml = manifests.unwrap().yaml(&Figures::assumed()).unwrap();
        let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        assert_eq!(documents.len(), 3, "{yaml}");
        let selector = &documents[2]["scheduling"]["nodeSelector"];
        assert_eq!((&selector["a"], &selector["b"]), (&"true".into(), &"1.0".into()), "{yaml}");
        assert_eq!(documents[0]["overhead"]["podFixed"]["memory"], "84Mi");
        assert!(yaml.contains("# Not measured") && yaml.contains("# Pods of up to 32Gi."), "{yaml}");
        assert!(yaml.lines().all(|line| line.len() <= COLUMNS + 2), "{yaml}");
    }
}
