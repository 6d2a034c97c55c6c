//! The Debian package, by `dpkg-deb`.

use std::fs;
use std::process::Command;

use super::{Release, VERSION, create_folder, is_installed, run, write};

/// Debian's name of this machine.
fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(super) fn make(release: &Release) -> Result<String, String> {
    if !is_installed("dpkg-deb") {
        return Ok("none: there is no dpkg-deb here".into());
    }
    let root = release.staging.folder().join("debian");
    release.staging.copy_to(&root.join("usr"))?;
    // Where Debian's zsh looks.
    let zsh = root.join("usr/share/zsh");
    fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions"))
        .map_err(|why| why.to_string())?;
    create_folder(&root.join("DEBIAN"))?;
    let machine = architecture(release.machine);
    let control = format!(
        "Package: mgp\n\
         Version: {VERSION}-1\n\
         Architecture: {machine}\n\
         Maintainer: The authors of the MGP kernel\n\
         Section: utils\n\
         Priority: optional\n\
         Depends: libc6 (>= {}), libgcc-s1\n\
         Recommends: ca-certificates\n\
         Suggests: nodejs, npm, pipx\n\
         Description: gateway for MCP servers\n\
         \x20Runs and supervises the MCP and MGP servers of a machine and gives every\n\
         \x20agent one endpoint to all of them, with access rules and an audit log.\n",
        release.c_library
    );
    write(&root.join("DEBIAN/control"), control)?;
    let name = format!("mgp_{VERSION}-1_{machine}.deb");
    let mut build = Command::new("dpkg-deb");
    build.args([
        "--root-owner-group",
        "-Zgzip",
        release.level().replace('-', "-z").as_str(),
    ]);
    build
        .env("SOURCE_DATE_EPOCH", "0")
        .arg("--build")
        .arg(&root);
    run(build.arg(release.folder.join(&name)))?;
    Ok(name)
}
