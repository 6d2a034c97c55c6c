//! What builds nothing and installs the archive: the install script, a Homebrew formula, and a PKGBUILD for AUR.

use std::process::Command;

use super::{Release, VERSION, digest, fill, is_installed, read, run, write};

const INSTALL: &str = include_str!("../../../packaging/install.sh");
const FORMULA: &str = include_str!("../../../packaging/mgp.rb");
const PKGBUILD: &str = include_str!("../../../packaging/PKGBUILD");

pub(super) fn make(release: &Release) -> Result<String, String> {
    let archive = format!("{}.tar.gz", release.name());
    let sum = digest::sha256(&read(&release.folder.join(&archive))?);
    let values = [
        ("VERSION", VERSION),
        ("URL", release.url.trim_end_matches('/')),
        ("ARCHIVE", &archive),
        ("MACHINE", release.machine),
        ("SHA256", &sum),
        ("GLIBC", &release.c_library),
    ];
    let mut linted = Vec::new();
    for (name, template, lint) in [
        ("install.sh", INSTALL, &["sh", "-n"][..]),
        ("mgp.rb", FORMULA, &["ruby", "-c"]),
        ("PKGBUILD", PKGBUILD, &["bash", "-n"]),
    ] {
        let place = release.folder.join(name);
        write(&place, fill(template, &values))?;
        if is_installed(lint[0]) {
            run(Command::new(lint[0]).args(&lint[1..]).arg(&place))?;
            linted.push(name);
        }
    }
    // What `mgp version --check` reads.
    let newest = serde_json::json!({"version": VERSION, "url": release.url.trim_end_matches('/')});
    write(&release.folder.join("latest.json"), newest.to_string())?;
    Ok(format!(
        "latest.json, install.sh, mgp.rb, PKGBUILD; syntax checked: {}",
        linted.join(", ")
    ))
}
