//! Compiles `proto/api.proto` (Kubernetes CRI v1, cri-api v0.36.3) with a pure-Rust protobuf compiler.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/api.proto");
    let files = protox::compile(["proto/api.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
