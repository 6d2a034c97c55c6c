//! The packages for npm: a launcher without machine code, and the program of this platform, which npm installs only
//! where it runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{PACKAGE, Release, VERSION, create_folder, is_installed, run, write};

const LAUNCHER: &str = include_str!("../../../packaging/npm/mgp.js");
const LAUNCHER_README: &str = include_str!("../../../packaging/npm/README.md");

/// npm's name of this machine.
fn cpu(machine: &str) -> &str {
    match machine {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(super) fn make(release: &Release) -> Result<String, String> {
    if !is_installed("npm") {
        return Ok("none: there is no npm here".into());
    }
    let platform = format!("{PACKAGE}-{}-{}", release.system, cpu(release.machine));
    let folder = release.staging.folder().join("npm");
    let (own, program) = (folder.join("launcher"), folder.join("program"));
    create_folder(&own)?;
    create_folder(&program.join("bin"))?;
    let manifest = |name: &str, description: &str, more: Value| {
        let mut manifest = json!({
            "name": name, "version": VERSION, "description": description,
            "license": "MIT OR Apache-2.0",
        });
        let members = more.as_object().expect("members").clone();
        manifest.as_object_mut().expect("an object").extend(members);
        serde_json::to_string_pretty(&manifest).expect("a manifest is JSON") + "\n"
    };
    let launcher = json!({
        "bin": {"mgp": "mgp.js"}, "files": ["mgp.js", "LICENSE-MIT", "LICENSE-APACHE"],
        "engines": {"node": ">=18"}, "optionalDependencies": {platform.as_str(): VERSION},
    });
    write(
        &own.join("package.json"),
        manifest(PACKAGE, "Gateway for MCP servers", launcher),
    )?;
    write(&own.join("mgp.js"), LAUNCHER)?;
    write(&own.join("README.md"), LAUNCHER_README)?;
    let this_platform = json!({
        "os": [release.system], "cpu": [cpu(release.machine)], "libc": ["glibc"],
        "files": ["bin/mgp", "LICENSE-MIT", "LICENSE-APACHE"], "preferUnplugged": true,
    });
    let description = format!("The program of {PACKAGE} for this platform");
    write(
        &program.join("package.json"),
        manifest(&platform, &description, this_platform),
    )?;
    fs::copy(
        release.staging.prefix().join("bin/mgp"),
        program.join("bin/mgp"),
    )
    .map_err(|why| why.to_string())?;
    for package in [&own, &program] {
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            fs::copy(licence, package.join(licence)).map_err(|why| why.to_string())?;
        }
        pack(package, &release.folder)?;
    }
    Ok(format!("{PACKAGE}-{VERSION}.tgz, {platform}-{VERSION}.tgz"))
}

fn pack(package: &Path, into: &Path) -> Result<(), String> {
    let mut npm = Command::new("npm");
    npm.current_dir(package)
        .args(["pack", "--silent", "--ignore-scripts", "--pack-destination"]);
    run(npm.arg(into))
}
