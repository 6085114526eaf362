//! Compiles the protocols in `proto/` with a protobuf compiler in Rust. Two of them share their package's
//! name, so each goes into a separate folder.

use std::path::PathBuf;
use std::{env, fs};

/// Files of `proto/` without their endings, also used as names of the folders.
const PROTOCOLS: [&str; 4] = ["v1beta1", "v1alpha2", "v0_1", "pod_resources"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for name in PROTOCOLS {
        let source = format!("proto/{name}.proto");
        println!("cargo::rerun-if-changed={source}");
        let folder = out.join(name);
        fs::create_dir_all(&folder)?;
        tonic_prost_build::configure()
            .btree_map(".")
            .out_dir(folder)
            .compile_fds(protox::compile([&source], ["proto"])?)?;
    }
    Ok(())
}
