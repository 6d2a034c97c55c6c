//! The archive, for the install script, Homebrew, AUR and `cargo binstall`.

use std::process::Command;

use super::staging::reproducible_tar;
use super::{Release, run};

pub(super) fn make(release: &Release) -> Result<String, String> {
    let name = release.name();
    let folder = release.staging.folder();
    release.staging.copy_to(&folder.join(&name))?;
    let tar = release.folder.join(format!("{name}.tar"));
    run(reproducible_tar(folder).arg("-cf").arg(&tar).arg(&name))?;
    // Without a name and a time in its head.
    run(Command::new("gzip").args([release.level(), "-n"]).arg(&tar))?;
    Ok(format!("{name}.tar.gz"))
}
