//! Generates the ttrpc services and their messages from `proto/nri.proto`.

use ttrpc_codegen::{Codegen, Customize, ProtobufCustomize};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/nri.proto");
    let out = std::env::var("OUT_DIR")?;
    Codegen::new()
        .out_dir(&out)
        .input("proto/nri.proto")
        .include("proto")
        .rust_protobuf()
        .customize(Customize { async_all: true, ..Default::default() })
        .rust_protobuf_customize(ProtobufCustomize::default().gen_mod_rs(false))
        .run()?;
    // The generated files open with inner attributes. `include!` does not accept these inside a module.
    for name in ["nri.rs", "nri_ttrpc.rs"] {
        let path = std::path::Path::new(&out).join(name);
        let text = std::fs::read_to_string(&path)?;
        let text: String = text
            .lines()
            .filter(|line| !line.starts_with("#![") && !line.starts_with("//!"))
            .flat_map(|line| [line, "\n"])
            .collect();
        std::fs::write(&path, text)?;
    }
    Ok(())
}
