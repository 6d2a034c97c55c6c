//! What makes clients out of an OpenAPI document, and what tries a door by one. They are installed for
//! `cargo xtask openapi-test` only.

use std::path::{Path, PathBuf};

use super::{Peers, interpreter, npm_ci, source, venv};
use crate::harness::Program;

/// The folder of their lists, and of the scripts that use what they make.
const OPENAPI: &str = "lite/openapi";

/// Where they are installed.
#[derive(Debug)]
pub struct OpenApiPrograms {
    peers: Peers,
    packages: PathBuf,
}

impl OpenApiPrograms {
    /// Installs them exactly as their lists say, into the user's cache, where they are not there yet.
    ///
    /// # Errors
    /// Why they cannot be installed.
    pub fn install() -> Result<Self, String> {
        let peers = Peers::at_home();
        let _alone = peers.lock().map_err(|e| e.to_string())?;
        let lists =
            ["package-lock.json", "requirements.txt"].map(|list| format!("{OPENAPI}/{list}"));
        let lists = [lists[0].as_str(), lists[1].as_str()];
        let packages = peers.folder_of("openapi", &lists);
        let programs = Self { peers, packages };
        if !programs.packages.join("ready").is_file() {
            npm_ci(&Self::source(), &programs.packages)?;
            venv(&Self::source(), &programs.packages)?;
            std::fs::write(programs.packages.join("ready"), "").map_err(|e| e.to_string())?;
        }
        Ok(programs)
    }

    /// The folder of the scripts.
    #[must_use]
    pub fn source() -> PathBuf {
        source().join(OPENAPI)
    }

    /// The folder of the npm packages.
    #[must_use]
    pub fn modules(&self) -> PathBuf {
        self.packages.join("node_modules")
    }

    /// schemathesis, openapi-python-client and others of the Python packages, by their commands.
    #[must_use]
    pub fn command(&self, name: &str, args: &[&str]) -> Program {
        let path = self.packages.join("venv/bin").join(name);
        Program::new(path.display().to_string(), args.iter().copied())
    }

    /// A script in Python.
    #[must_use]
    pub fn python(&self, script: &Path) -> Program {
        Program::new(interpreter(&self.packages), [script.display().to_string()])
    }

    /// A script of the npm packages, or any other by its whole path.
    #[must_use]
    pub fn node(&self, script: &str) -> Program {
        self.peers.node_program(&self.modules().join(script), &[])
    }
}
