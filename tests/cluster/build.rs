//! Compiles the two protocols in `proto/` with a protobuf compiler in Rust.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for name in ["csi", "registration"] {
        let source = format!("proto/{name}.proto");
        println!("cargo::rerun-if-changed={source}");
        tonic_prost_build::configure().compile_fds(protox::compile([&source], ["proto"])?)?;
    }
    Ok(())
}
