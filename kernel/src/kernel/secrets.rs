//! The secrets of a kernel: its token and its keys, each created at the first start in an owner-only file of the
//! data folder.

use mgp_runtime::randomness;
use mgp_store::{atomic_file, explain_io_error, regular_file};
use std::io;
use std::path::{Path, PathBuf};

use mgp_engine::callers::seal::SealKey;
use mgp_engine::node_key::NodeKey;

use crate::key_rotation::NODE_KEY;

/// Effect of removing a token.
const TOKEN_LOSS: &str = "a new one is made at the next start, which whoever had this one needs";
/// Effect of removing the seal key.
const SEAL_KEY_LOSS: &str = "what clients hold of suspended calls and tasks is lost";
/// Shortest token in bytes: 32 hexadecimal digits have 128 bits.
const TOKEN_MIN: usize = 32;

/// The operator's token.
pub(super) fn load_token(data_dir: &Path) -> Result<(String, PathBuf), String> {
    check_length(data_dir.join("token"))
}

/// The token of `/metrics`, which opens nothing else.
pub(super) fn load_metrics_token(data_dir: &Path) -> Result<(String, PathBuf), String> {
    check_length(data_dir.join("metrics.token"))
}

fn check_length(path: PathBuf) -> Result<(String, PathBuf), String> {
    let token = load_or_create(&path, TOKEN_LOSS)?;
    let describe_problem = |what: &str| {
        Err(format!(
            "{} {what}; remove it, and {TOKEN_LOSS}",
            path.display()
        ))
    };
    match () {
        () if token.len() < TOKEN_MIN => describe_problem(&format!(
            "holds {} characters, and a token has {TOKEN_MIN} at least",
            token.len()
        )),
        () if !token.bytes().all(|b| b.is_ascii_graphic()) => describe_problem(
            "holds what no token has: a space, or something else that is no visible ASCII",
        ),
        () => Ok((token, path)),
    }
}

/// The key that seals state held by clients; persistent, so that it opens what the kernel sealed in an earlier run.
pub(super) fn load_seal_key(data_dir: &Path) -> Result<SealKey, String> {
    let path = data_dir.join("seal.key");
    Ok(SealKey::new(load_key(&path, SEAL_KEY_LOSS)?))
}

/// The key for the ids that servers and agents see of each other's conversations. Derived from the seal key, so that
/// ids are the same after a restart.
pub(super) fn derive_id_key(data_dir: &Path) -> Result<[u8; 32], String> {
    let sealing = load_key(&data_dir.join("seal.key"), SEAL_KEY_LOSS)?;
    Ok(blake3::derive_key(
        "mgp 2026-11 ids of conversations",
        &sealing,
    ))
}

/// The key this node signs with, never replaced automatically.
pub(super) fn load_node_key(data_dir: &Path) -> Result<NodeKey, String> {
    let path = data_dir.join(NODE_KEY);
    let bytes = load_key(&path, "nothing that was granted or denied holds any more")?;
    Ok(NodeKey::new(&bytes))
}

/// The key for digests in the audit log.
pub(super) fn load_audit_key(data_dir: &Path) -> Result<[u8; 32], String> {
    let path = data_dir.join("audit.key");
    // Any content of the file is as good a key as before.
    Ok(blake3::derive_key(
        "mgp 2026-11 audit key",
        load_or_create(
            &path,
            "arguments have other digests in the audit log from then on",
        )?
        .as_bytes(),
    ))
}

/// Bytes as hexadecimal digits.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// 32 bytes of a key file; `lost` is the effect of removing it.
fn load_key(path: &Path, lost: &str) -> Result<[u8; 32], String> {
    let text = load_or_create(path, lost)?;
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| {
        format!(
            "{} does not hold 64 hexadecimal digits; put a copy back, or remove it, and {lost}",
            path.display()
        )
    })
}

/// A secret in an owner-only file: 32 random bytes in hexadecimal, created if absent. `lost` is the effect of
/// removing it.
fn load_or_create(path: &Path, lost: &str) -> Result<String, String> {
    let bytes = match regular_file::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return create(path).map_err(|e| explain_io_error(path, &e));
        }
        read => read.map_err(|e| explain_io_error(path, &e))?,
    };
    let path_text = path.display();
    let describe_problem =
        |what: &str| format!("{path_text} {what}; put a copy back, or remove it, and {lost}");
    let text =
        String::from_utf8(bytes).map_err(|_| describe_problem("is damaged: it is not text"))?;
    match text.trim() {
        "" => Err(describe_problem("is empty")),
        secret => Ok(secret.to_owned()),
    }
}

/// Writes a new secret atomically.
fn create(path: &Path) -> io::Result<String> {
    let new = to_hex(&randomness::random_bytes::<32>());
    atomic_file::write(path, format!("{new}\n").as_bytes())?;
    Ok(new)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use mgp_engine::callers::seal::Purpose;

    use super::*;

    #[test]
    fn seals_of_an_earlier_run_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let sealed = load_seal_key(dir.path())
            .unwrap()
            .seal(Purpose::Task, "a", &"record");
        let again = load_seal_key(dir.path()).unwrap();
        let opened: Result<String, _> = again.open(Purpose::Task, "a", &sealed);
        assert_eq!(opened.unwrap(), "record");
        std::fs::write(dir.path().join("seal.key"), "zz").unwrap();
        assert!(
            load_seal_key(dir.path())
                .unwrap_err()
                .contains("hexadecimal")
        );
    }

    #[test]
    fn a_node_keeps_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let node = load_node_key(dir.path()).unwrap().node_id();
        assert_eq!(load_node_key(dir.path()).unwrap().node_id(), node);
        let file = dir.path().join("node.key").metadata().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&file.permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_token_stays_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (first, path) = load_token(dir.path()).unwrap();
        assert_eq!(load_token(dir.path()).unwrap().0, first);
        assert_eq!(first.len(), 64);
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    /// Problems of secrets are reported with path and remedy; a few letters are no token.
    #[test]
    fn a_bad_token_or_key_is_reported_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let cases: [(&[u8], &str); 5] = [
            (b"", "is empty"),
            (b"\n", "is empty"),
            (b"\xff\xfe", "it is not text"),
            (b"x\n", "holds 1 characters"),
            (b"0123456789abcdef 0123456789abcdef", "a space"),
        ];
        for (bytes, why) in cases {
            fs::write(&path, bytes).unwrap();
            let error = load_token(dir.path()).unwrap_err();
            assert!(
                error.contains(why) && error.contains("remove it"),
                "{error}"
            );
            assert!(error.starts_with(&path.display().to_string()), "{error}");
            assert_eq!(fs::read(&path).unwrap(), bytes, "nothing is changed");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(load_token(dir.path()).unwrap().0.len(), 64);
        fs::write(dir.path().join("node.key"), b"\xff").unwrap();
        let error = load_node_key(dir.path()).err().unwrap();
        assert!(error.contains("nothing that was granted"), "{error}");
    }
}
