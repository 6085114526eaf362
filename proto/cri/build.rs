//! Compiles `proto/api.proto` (Kubernetes CRI v1, cri-api v0.36.3) with a protobuf compiler in Rust, and a
//! second time under the name v1alpha2. That version's messages are v1's with fewer fields, so its services
//! are generated over v1's types. The messages of `src/list_responses.rs` are handwritten and not generated.

use std::path::{Path, PathBuf};
use std::{env, fs};

type Failure = Box<dyn std::error::Error>;

const SOURCE: &str = "proto/api.proto";

/// The RPCs of v1alpha2 at its last use by kubelets (Kubernetes 1.25). Only v1 has newer RPCs.
const V1ALPHA2: [&str; 29] = [
    "Version",
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PodSandboxStatus",
    "ListPodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "ListContainers",
    "ContainerStatus",
    "UpdateContainerResources",
    "ReopenContainerLog",
    "ExecSync",
    "Exec",
    "Attach",
    "PortForward",
    "ContainerStats",
    "ListContainerStats",
    "PodSandboxStats",
    "ListPodSandboxStats",
    "UpdateRuntimeConfig",
    "Status",
    "ListImages",
    "ImageStatus",
    "PullImage",
    "RemoveImage",
    "ImageFsInfo",
];

/// Handwritten messages in `src/list_responses.rs`.
const BY_HAND: [&str; 2] = ["ListPodSandboxResponse", "ListContainersResponse"];

fn main() -> Result<(), Failure> {
    println!("cargo::rerun-if-changed={SOURCE}");
    // The daemon uses maps of this kind, so that nothing is hashed for a list of hundreds.
    let mut current = tonic_prost_build::configure().btree_map(".");
    for answer in BY_HAND {
        current =
            current.extern_path(format!(".runtime.v1.{answer}"), format!("crate::list_responses::{answer}"));
    }
    current.compile_fds(protox::compile([SOURCE], ["proto"])?)?;
    let old = older(&PathBuf::from(env::var("OUT_DIR")?))?;
    let dir = old.parent().ok_or("a file lies in a folder")?;
    tonic_prost_build::configure()
        .extern_path(".runtime.v1alpha2", "crate::v1")
        .compile_fds(protox::compile([&old], [dir])?)?;
    Ok(())
}

/// Writes the file again with the older package's name and without the RPCs missing there.
fn older(dir: &Path) -> Result<PathBuf, Failure> {
    let source = fs::read_to_string(SOURCE)?;
    let mut kept = 0;
    let mut text = String::new();
    for line in source.lines() {
        if let Some(rpc) = line.trim_start().strip_prefix("rpc ") {
            let name = rpc.split('(').next().unwrap_or_default();
            if !V1ALPHA2.contains(&name) {
                continue;
            }
            kept += 1;
        }
        text.push_str(line);
        text.push('\n');
    }
    if kept != V1ALPHA2.len() || !text.contains("package runtime.v1;") {
        return Err(format!("{SOURCE} is not as this program expects it").into());
    }
    let path = dir.join("v1alpha2.proto");
    fs::write(&path, text.replace("package runtime.v1;", "package runtime.v1alpha2;"))?;
    Ok(path)
}
