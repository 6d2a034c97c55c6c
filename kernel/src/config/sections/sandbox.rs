//! Sandboxes: `[sandbox]`, and `[servers.sandbox]` of one server.

use std::path::PathBuf;

use mgp_engine::servers::sandbox::{SandboxConfig, SandboxLimits};

use crate::config::parsing::{ReadSection, Section};

impl ReadSection for SandboxConfig {
    fn read(&mut self, section: &mut Section<'_, '_, '_>) {
        section.flag("required", &mut self.required);
        section.flag("seal_required", &mut self.is_seal_required);
        read_limits(section, &mut self.limits);
    }
}

/// `[servers.sandbox]`: what the server's permissions open, and its own bounds.
pub(crate) fn read_server_sandbox(section: &mut Section<'_, '_, '_>, rules: &mut SandboxConfig) {
    rules.is_operator_written = true;
    read_paths(section, "read", &mut rules.read);
    read_paths(section, "write", &mut rules.write);
    rules.egress = section.parse_each("egress", str::parse);
    read_limits(section, &mut rules.limits);
}

fn read_limits(section: &mut Section<'_, '_, '_>, limits: &mut SandboxLimits) {
    section.count("memory_bytes", 16 << 20..=1 << 40, &mut limits.memory);
    section.count("processes", 1..=65_536, &mut limits.processes);
    section.count("open_files", 16..=1 << 20, &mut limits.open_files);
    section.count("file_bytes", 0..=1 << 50, &mut limits.file_size);
}

/// Paths, relative ones from the file's folder. Links are resolved at each start of a server, with the folders that are
/// writable then.
pub(crate) fn read_paths(
    section: &mut Section<'_, '_, '_>,
    key: &'static str,
    into: &mut Vec<PathBuf>,
) {
    if let Some(paths) = section.texts(key) {
        let folder = section.folder();
        let paths = paths.into_iter().map(|path| folder.join(path.get_ref()));
        *into = paths
            .map(|path| std::path::absolute(&path).unwrap_or(path))
            .collect();
    }
}
