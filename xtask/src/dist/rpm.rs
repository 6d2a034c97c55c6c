//! The RPM package: its spec always, the package itself where `rpmbuild` is.

use std::fs;
use std::process::Command;

use super::{Release, VERSION, create_folder, fill, is_installed, run, write};

const SPEC: &str = include_str!("../../../packaging/mgp.spec");

pub(super) fn make(release: &Release) -> Result<String, String> {
    let prefix = release.staging.prefix();
    let spec = fill(
        SPEC,
        &[
            ("VERSION", VERSION),
            ("MACHINE", release.machine),
            ("PREFIX", &prefix.display().to_string()),
            (
                "COMPRESSION",
                if release.is_fast {
                    "w1.gzdio"
                } else {
                    "w9.gzdio"
                },
            ),
        ],
    );
    let top = release.staging.folder().join("rpm");
    create_folder(&top)?;
    let place = top.join("mgp.spec");
    write(&place, spec)?;
    if !is_installed("rpmbuild") {
        return Ok("none: there is no rpmbuild here".into());
    }
    let defined = |name: &str, value: &str| format!("{name} {value}");
    let mut build = Command::new("rpmbuild");
    build.args([
        "-bb",
        "--quiet",
        "--define",
        &defined("_topdir", &top.display().to_string()),
    ]);
    build.env("SOURCE_DATE_EPOCH", "0");
    run(build.arg(&place))?;
    let name = format!("mgp-{VERSION}-1.{}.rpm", release.machine);
    let built = top.join("RPMS").join(release.machine).join(&name);
    fs::rename(&built, release.folder.join(&name))
        .map_err(|why| format!("{}: {why}", built.display()))?;
    Ok(name)
}
