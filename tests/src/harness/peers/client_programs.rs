//! The programs that people use agents in. They are large, so they are installed for `cargo xtask client-test` only.

use std::path::PathBuf;

use super::{Peers, npm_ci, source};
use crate::harness::Program;

/// The folder of their lock file, and of their packages.
const PROGRAMS: &str = "programs";

/// Where they are installed.
#[derive(Debug)]
pub struct ClientPrograms {
    peers: Peers,
    packages: PathBuf,
}

impl ClientPrograms {
    /// Installs them exactly as their lock file says, into the user's cache, where they are not there yet.
    ///
    /// # Errors
    /// Why they cannot be installed.
    pub fn install() -> Result<Self, String> {
        let peers = Peers::at_home();
        let _alone = peers.lock().map_err(|e| e.to_string())?;
        let packages = peers.folder_of(PROGRAMS, &["programs/package-lock.json"]);
        let programs = Self { peers, packages };
        if !programs.packages.join("ready").is_file() {
            npm_ci(&source().join(PROGRAMS), &programs.packages)?;
            std::fs::write(programs.packages.join("ready"), "").map_err(|e| e.to_string())?;
        }
        Ok(programs)
    }

    /// Claude Code.
    #[must_use]
    pub fn claude(&self) -> Program {
        let (system, processor) = (std::env::consts::OS, std::env::consts::ARCH);
        let processor = processor
            .replace("x86_64", "x64")
            .replace("aarch64", "arm64");
        let name = format!("@anthropic-ai/claude-code-{system}-{processor}/claude");
        Program::new(self.module(&name), [""; 0])
    }

    /// Gemini CLI, in a folder that it is told to trust.
    #[must_use]
    pub fn gemini(&self) -> Program {
        let script = self.module("@google/gemini-cli/bundle/gemini.js");
        let program = self.peers.node_program(script.as_ref(), &[]);
        program.env("GEMINI_CLI_TRUST_WORKSPACE", "true")
    }

    /// Codex.
    #[must_use]
    pub fn codex(&self) -> Program {
        let script = self.module("@openai/codex/bin/codex.js");
        self.peers.node_program(script.as_ref(), &[])
    }

    fn module(&self, name: &str) -> String {
        let path = self.packages.join("node_modules").join(name);
        path.display().to_string()
    }
}
