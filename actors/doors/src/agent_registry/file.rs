//! The registry on disk: one file, replaced as a whole. It has at most a few thousand lines and is changed
//! by hand, so it needs no journal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mgp_engine::doors::agent_registry::{AgentChangeError, AgentRecord, AgentRegistry};
use serde::{Deserialize, Serialize};

use mgp_store::atomic_file;
use mgp_store::regular_file;

/// The largest file that is read: the maximum number of agents, with some margin.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Why the registry cannot be read. With a damaged registry nobody can authenticate.
#[derive(Debug, thiserror::Error)]
pub enum RegistryFileError {
    /// The I/O error.
    #[error("{}: {why}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: io::Error,
    },
    /// Its contents are damaged.
    #[error(
        "{} is damaged ({why}); put a copy of it back, or remove it and make the tokens of all agents anew",
        path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
}

/// The file. The checksum covers the text of the other member.
#[derive(Serialize, Deserialize)]
struct RegistryFile {
    checksum: String,
    agents: Box<serde_json::value::RawValue>,
}

/// Reads the registry; an empty one when there is no file.
///
/// # Errors
/// [`RegistryFileError`].
pub fn load(path: &Path) -> Result<AgentRegistry, RegistryFileError> {
    let disk = |why| RegistryFileError::Disk {
        path: path.to_owned(),
        why,
    };
    let content = |why: String| RegistryFileError::Content {
        path: path.to_owned(),
        why,
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(AgentRegistry::default());
        }
        Err(error) => return Err(disk(error)),
        Ok(found) if found.len() > FILE_BYTES_MAX => {
            return Err(content(format!(
                "it has {} bytes, {FILE_BYTES_MAX} are the most",
                found.len()
            )));
        }
        Ok(_) => {}
    }
    let text = regular_file::read(path).map_err(disk)?;
    let sheet: RegistryFile = serde_json::from_slice(&text).map_err(|e| content(e.to_string()))?;
    if checksum(sheet.agents.get()) != sheet.checksum {
        return Err(content("its checksum is another".into()));
    }
    let records: Vec<AgentRecord> =
        serde_json::from_str(sheet.agents.get()).map_err(|e| content(e.to_string()))?;
    AgentRegistry::from_records(records)
        .map_err(|twice: AgentChangeError| content(twice.to_string()))
}

/// Writes a registry without agents.
///
/// # Errors
/// The I/O error.
pub fn create_empty(path: &Path) -> io::Result<()> {
    write(path, &[])
}

/// Writes the file so that it survives a crash of the machine: the new registry or the old one, never a
/// mixture.
pub(super) fn write(path: &Path, records: &[AgentRecord]) -> io::Result<()> {
    let agents = serde_json::to_string(records)?;
    let sheet = RegistryFile {
        checksum: checksum(&agents),
        agents: serde_json::value::RawValue::from_string(agents)?,
    };
    atomic_file::write(path, &serde_json::to_vec(&sheet)?)
}

fn checksum(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use mgp_engine::doors::agent_registry::{AgentChange, TokenDigest};
    use mgp_protocol::ids::AgentId;

    use super::*;

    fn registry() -> AgentRegistry {
        let mut registry = AgentRegistry::default();
        let added = AgentChange::Added {
            agent: AgentId::new("agent.a"),
            digest: TokenDigest::new("mgp_secret"),
            at_ms: 1,
            not_after_ms: Some(2),
        };
        registry.apply(&added).unwrap();
        registry
    }

    #[test]
    fn registry_round_trips_and_stores_no_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.json");
        assert_eq!(load(&path).unwrap(), AgentRegistry::default());
        write(&path, &registry().to_records()).unwrap();
        write(&path, &registry().to_records()).unwrap();
        assert_eq!(load(&path).unwrap(), registry());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!fs::read_to_string(&path).unwrap().contains("secret"));
    }

    /// A changed byte or a missing part is reported, and admits no agent.
    #[test]
    fn damaged_registry_is_rejected_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.json");
        write(&path, &registry().to_records()).unwrap();
        let valid = fs::read(&path).unwrap();
        for at in 0..valid.len() {
            let mut damaged = valid.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains("agents.json is damaged"), "{error}");
            fs::write(&path, &valid[..at]).unwrap();
            assert!(load(&path).is_err(), "cut at {at}");
        }
    }
}
