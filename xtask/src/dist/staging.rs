//! The files of a release below a prefix: `bin/mgp`, manual pages, completions, documents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{create_folder, output_of, run, write};

/// Where each shell looks for completions below a prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/mgp"),
    ("zsh", "share/zsh/site-functions/_mgp"),
    ("fish", "share/fish/vendor_completions.d/mgp.fish"),
];

/// Documents of the sources.
const DOCUMENTS: [&str; 4] = [
    "README.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "mgp.toml.example",
];

/// A folder with the files of a release.
pub(super) struct Staging(PathBuf);

impl Staging {
    pub(super) fn create(folder: &Path, program: &Path) -> Result<Self, String> {
        let prefix = folder.join("prefix");
        for part in ["bin", "share/man/man1", "share/doc/mgp"] {
            create_folder(&prefix.join(part))?;
        }
        let staged = prefix.join("bin/mgp");
        fs::copy(program, &staged).map_err(|why| format!("{}: {why}", program.display()))?;
        run(Command::new("strip").arg(&staged))?;
        run(Command::new(&staged)
            .arg("__manual-pages")
            .arg(prefix.join("share/man/man1")))?;
        for (shell, place) in COMPLETIONS {
            let script = output_of(Command::new(&staged).args(["completions", shell]))?;
            let place = prefix.join(place);
            create_folder(place.parent().expect("it is in a folder"))?;
            write(&place, script)?;
        }
        for document in DOCUMENTS {
            let place = prefix.join("share/doc/mgp").join(document);
            fs::copy(document, &place).map_err(|why| format!("{document}: {why}"))?;
        }
        run(Command::new("chmod")
            .args(["-R", "u=rwX,go=rX"])
            .arg(&prefix))?;
        Ok(Self(folder.to_owned()))
    }

    /// All of it, with room for what single artefacts need.
    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// The prefix.
    pub(super) fn prefix(&self) -> PathBuf {
        self.0.join("prefix")
    }

    /// A copy of the prefix below another folder, for an artefact that moves or adds files.
    pub(super) fn copy_to(&self, place: &Path) -> Result<(), String> {
        create_folder(place)?;
        run(Command::new("cp")
            .arg("-a")
            .arg(self.prefix().join("."))
            .arg(place))
    }
}

/// A tar command whose result depends on the files alone: names in order, of nobody and of no time.
pub(super) fn reproducible_tar(folder: &Path) -> Command {
    let mut tar = Command::new("tar");
    tar.current_dir(folder).args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
        "--format=ustar",
    ]);
    tar
}
