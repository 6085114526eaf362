//! Compiles `proto/images.proto` with a protobuf compiler in Rust.

const SOURCE: &str = "proto/images.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={SOURCE}");
    tonic_prost_build::configure().compile_fds(protox::compile([SOURCE], ["proto"])?)?;
    Ok(())
}
