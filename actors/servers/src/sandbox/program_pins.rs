//! Pins the programs and files that a server without readable code is started from, by hash: only what a person
//! has approved is started.
//!
//! Downloads of package runners and imports of interpreters are not covered.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use mgp_engine::servers::sandbox::PinnedProgram;
use mgp_transports::child::{self, ChildSpec};

/// The hashed bytes of a file; for a longer file the length is hashed as well.
const HASHED_BYTES_MAX: u64 = 1 << 30;

/// Hashes the program of this process and the files that its arguments name by absolute paths. Blocks.
pub fn pin_programs(spec: &ChildSpec) -> Vec<PinnedProgram> {
    // The server's own folder may not exist yet, and contains nothing that a person approved.
    let spec = ChildSpec {
        cwd: Some("/".into()),
        ..spec.clone()
    };
    let program = child::find_program(&spec).ok().map(|(program, _)| program);
    let named = spec.args.iter().map(PathBuf::from);
    let named = named.filter(|path| path.is_absolute() && path.is_file());
    let files = program.into_iter().chain(named);
    let pin = |path: PathBuf| {
        let hash = hash(&path).unwrap_or_else(|error| error.kind().to_string());
        PinnedProgram { path, hash }
    };
    files.map(pin).collect()
}

/// The first change: a path, or what is missing.
pub fn find_change(before: &[PinnedProgram], now: &[PinnedProgram]) -> Option<String> {
    let other = before.iter().find(|pinned| !now.contains(pinned));
    let new = now.iter().find(|pinned| !before.contains(pinned));
    let path = &other.or(new)?.path;
    Some(path.display().to_string())
}

fn hash(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut file.take(HASHED_BYTES_MAX), &mut hasher)?;
    hasher.update(&length.to_le_bytes());
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that was replaced, or shadowed by one found earlier, is detected.
    #[test]
    fn replaced_or_shadowed_program_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let write_file = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt;
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        write_file("b/server", "one");
        let data = write_file("data.jar", "one");
        let paths = [folder.path().join("a"), folder.path().join("b")];
        let paths = paths.map(|path| path.display().to_string()).join(":");
        let spec = ChildSpec {
            id: mgp_protocol::ids::ServerId::new("dynamic.x"),
            command: "server".into(),
            args: vec![data.display().to_string(), "missing".into()],
            env: [("PATH".to_owned(), paths)].into(),
            inherit_env: Vec::new(),
            cwd: Some(folder.path().join("not-there")),
            kernel_mark: "mark".into(),
            launcher: None,
        };
        let before = pin_programs(&spec);
        assert_eq!(before.len(), 2);
        assert_eq!(find_change(&before, &pin_programs(&spec)), None);
        write_file("data.jar", "two");
        assert!(
            find_change(&before, &pin_programs(&spec))
                .unwrap()
                .ends_with("data.jar")
        );
        write_file("data.jar", "one");
        write_file("a/server", "one");
        assert!(
            find_change(&before, &pin_programs(&spec))
                .unwrap()
                .ends_with("b/server")
        );
        std::fs::remove_file(folder.path().join("a/server")).unwrap();
        write_file("b/server", "two");
        assert!(find_change(&before, &pin_programs(&spec)).is_some());
        std::fs::remove_file(folder.path().join("b/server")).unwrap();
        assert!(find_change(&before, &pin_programs(&spec)).is_some());
    }
}
