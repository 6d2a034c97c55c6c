//! Pins the programs and files that a server without readable code is started from, by hash: only what a person
//! has approved is started.
//!
//! Downloads of package runners and imports of interpreters are not covered.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use mgp_engine::servers::sandbox::{PinnedProgram, Seal};
use mgp_transports::child::{self, ChildSpec};
use ring::digest;

/// The hashed bytes of a file; for a longer file the length is hashed as well.
const HASHED_BYTES_MAX: u64 = 1 << 30;
/// The bytes that are read at once.
const BLOCK_BYTES: usize = 64 << 10;

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

/// Checks the file of a seal. Blocks.
///
/// # Errors
/// The file cannot be read, or is another one; with what to do.
pub(crate) fn check_seal(spec: &ChildSpec, seal: &Seal) -> Result<(), String> {
    let file = match (&seal.entry_point, &spec.cwd) {
        (Some(path), Some(folder)) => folder.join(path),
        (Some(path), None) => path.clone(),
        (None, _) => child::find_program(spec).map_err(|e| e.to_string())?.0,
    };
    let shown = file.display();
    let found = compute_sha256(&file).map_err(|error| {
        format!("{shown}, which [servers.mgp] seals, cannot be read: {error}; put it back, or correct `entry_point`")
    })?;
    if found == seal.sha256 {
        return Ok(());
    }
    Err(format!(
        "{shown} is not the file that [servers.mgp] seals: it has sha256:{found}; look at what changed, then write that as `seal`"
    ))
}

/// SHA-256 of a file in lowercase hexadecimal. Blocks.
///
/// # Errors
/// It cannot be read, or is larger than a program is.
pub fn compute_sha256(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    if file.metadata()?.len() > HASHED_BYTES_MAX {
        return Err(io::Error::other("it is larger than 1 GiB"));
    }
    let mut digest = digest::Context::new(&digest::SHA256);
    let mut reader = file.take(HASHED_BYTES_MAX);
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let read = reader.read(&mut block)?;
        if read == 0 {
            break;
        }
        digest.update(&block[..read]);
    }
    let digest = digest.finish();
    Ok(digest.as_ref().iter().map(|b| format!("{b:02x}")).collect())
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

    /// EXT-169: only the sealed file is started: by default the program, else the named one in the working folder.
    #[test]
    fn only_the_sealed_file_passes() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("server.py");
        std::fs::write(&script, "").unwrap();
        let spec = ChildSpec {
            id: mgp_protocol::ids::ServerId::new("x"),
            command: "/bin/sh".into(),
            args: vec!["server.py".into()],
            env: std::collections::BTreeMap::new(),
            inherit_env: Vec::new(),
            cwd: Some(folder.path().to_owned()),
            kernel_mark: String::new(),
            launcher: None,
        };
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let seal = |entry_point: Option<&str>| Seal {
            entry_point: entry_point.map(PathBuf::from),
            sha256: empty.to_owned(),
        };
        assert_eq!(check_seal(&spec, &seal(Some("server.py"))), Ok(()));
        let why = check_seal(&spec, &seal(None)).unwrap_err();
        assert!(why.contains("/bin/sh is not the file"), "{why}");
        let why = check_seal(&spec, &seal(Some("gone.py"))).unwrap_err();
        assert!(why.contains("cannot be read"), "{why}");
        std::fs::write(&script, " ").unwrap();
        let why = check_seal(&spec, &seal(Some("server.py"))).unwrap_err();
        let found = "sha256:36a9e7f1c95b82ffb99743e0c5c4ce95d83c9a430aac59f84ef3cbfab6145068";
        assert!(why.contains(found), "{why}");
    }
}
