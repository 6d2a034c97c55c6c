//! Sandboxes: `[sandbox]`, and `[servers.sandbox]` of one server.

use std::path::{Path, PathBuf};

use mgp_engine::servers::sandbox::{SandboxConfig, SandboxLimits};

use crate::config::parsing::Section;

/// `[sandbox]`: defaults for all sandboxed servers.
pub(crate) fn read_sandbox(mut section: Section<'_, '_, '_>, rules: &mut SandboxConfig) {
    section.flag("required", &mut rules.required);
    read_limits(&mut section, &mut rules.limits);
    section.finish();
}

/// `[servers.sandbox]`: what the server's permissions open, and its own bounds.
pub(crate) fn read_server_sandbox(
    mut section: Section<'_, '_, '_>,
    folder: &Path,
    rules: &mut SandboxConfig,
) {
    rules.is_operator_written = true;
    rules.read = read_paths(&mut section, "read", folder);
    rules.write = read_paths(&mut section, "write", folder);
    read_limits(&mut section, &mut rules.limits);
    section.finish();
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
    folder: &Path,
) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    section.strings(key, &mut paths);
    let whole = paths.iter().map(|path| folder.join(path));
    whole
        .map(|path| std::path::absolute(&path).unwrap_or(path))
        .collect()
}
