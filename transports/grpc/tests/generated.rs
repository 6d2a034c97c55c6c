//! `generated/` is what `proto/mcplite.proto` gives. It is in the repository because its generators would take longer
//! to build than the rest of this crate.

use std::path::Path;
use std::{env, fs};

/// Set `MGP_GENERATE=1` to write the files anew, after the document's text or a generator has changed.
#[test]
fn generated_code_matches_the_document() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = env::temp_dir().join(format!("mgp-grpc-{}", std::process::id()));
    fs::create_dir_all(&out).unwrap();
    let mut compiler = protox::Compiler::new([root.join("proto")]).unwrap();
    compiler
        .include_imports(true)
        .open_file("mcplite.proto")
        .unwrap();
    fs::write(
        out.join("mcplite.bin"),
        compiler.encode_file_descriptor_set(),
    )
    .unwrap();
    tonic_prost_build::configure()
        .build_transport(false)
        .extern_path(".google.protobuf.Struct", "crate::exact::Struct")
        .out_dir(&out)
        .compile_fds(compiler.file_descriptor_set())
        .unwrap();
    let is_writing = env::var_os("MGP_GENERATE").is_some();
    for name in ["mcplite.bin", "mcplite.rs"] {
        let (made, kept) = (out.join(name), root.join("generated").join(name));
        if is_writing {
            fs::copy(&made, &kept).unwrap();
        }
        let is_same = fs::read(&made).unwrap() == fs::read(&kept).unwrap();
        assert!(
            is_same,
            "{} is out of date: run this test with MGP_GENERATE=1",
            kept.display()
        );
    }
    fs::remove_dir_all(&out).unwrap();
}
