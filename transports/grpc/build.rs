//! Generates the messages and the service of MCP-lite from the document's own text, without `protoc`.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file("mcplite.proto")?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(
        out.join("mcplite.bin"),
        compiler.encode_file_descriptor_set(),
    )?;
    tonic_prost_build::configure()
        .build_transport(false)
        .extern_path(".google.protobuf.Struct", "crate::exact::Struct")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
