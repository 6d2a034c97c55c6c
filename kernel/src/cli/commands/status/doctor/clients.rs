//! The clients of this user: whether their entries lead to this program and this kernel.

use std::path::Path;

use mgp_clients::{Client, address, command_words, leads_to_kernel};
use serde_json::Value;

use super::Patient;
use super::finding::DoctorFinding;
use super::programs::program;
use crate::cli::commands::agents::url;
use crate::cli::commands::servers::connect::ENTRIES;
use crate::cli::commands::servers::connect::client_file::ClientFileEdit;

const AREA: &str = "client";

pub(super) fn look(patient: &Patient<'_>) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    let mut good = 0;
    let exe = std::env::current_exe().unwrap_or_default();
    let doors = patient.status.iter().flat_map(|status| &status.doors);
    let door = doors.filter_map(|door| url(door)).next();
    for client in Client::ALL {
        let Ok(file) = ClientFileEdit::of(patient.context, client) else {
            continue;
        };
        if !file.exists() {
            continue;
        }
        let Ok(document) = client.form().read(file.before()) else {
            let told = format!("{} cannot be read", file.path.display());
            found.push(DoctorFinding::warning(AREA, told));
            continue;
        };
        let table = client.table_in(&document);
        let table = table
            .iter()
            .try_fold(&document, |value, key| value.get(key));
        for (name, entry) in table.map(Client::entries).unwrap_or_default() {
            match judge(name, entry, &exe, door) {
                None => {}
                Some(Ok(())) => good += 1,
                Some(Err(why)) => {
                    let told = format!("{client}, {name} in {}: {why}", file.path.display());
                    let command = format!("mgp connect {}", client.word());
                    found.push(DoctorFinding::warning(AREA, told).mended_by(command));
                }
            }
        }
    }
    if good > 0 {
        found.push(DoctorFinding::good(
            AREA,
            format!("{good} lead to this kernel"),
        ));
    }
    found
}

/// Whether an entry that is ours leads here; `None` for the entry of another server.
fn judge(name: &str, entry: &Value, exe: &Path, door: Option<&str>) -> Option<Result<(), String>> {
    let leads = leads_to_kernel(entry, door.unwrap_or_default());
    match (address(entry), door) {
        (None, _) if leads => Some(leads_here(command_words(entry).first()?, exe)),
        (Some(_), _) if leads => Some(Ok(())),
        // One that this kernel wrote may lead to where it was.
        (Some(address), Some(door)) if ENTRIES.contains(&name) => Some(Err(format!(
            "it reaches {}, and the kernel that runs listens at {door}",
            mgp_protocol::address::shown(address)
        ))),
        (Some(_) | None, _) => None,
    }
}

fn leads_here(command: &str, exe: &Path) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let Some(place) = program(command, &path) else {
        return Err(format!("it starts `{command}`, which is not there"));
    };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match real(&place) == real(exe) {
        true if command.contains('/') => Ok(()),
        true => Err(format!(
            "it starts `{command}` without a path, which a client from the desktop may not find"
        )),
        false => Err(format!(
            "it starts {}, and this program is {}",
            place.display(),
            exe.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_that_leads_elsewhere_is_told_from_one_that_leads_here() {
        let exe = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("mgp");
        std::os::unix::fs::symlink(&exe, &here).unwrap();
        let judged = |entry: Value| judge("mgp", &entry, &exe, Some("http://127.0.0.1:1/mcp"));
        assert_eq!(
            judged(json!({"command": here, "args": ["stdio"]})),
            Some(Ok(()))
        );
        assert_eq!(judged(json!({"command": [here, "stdio"]})), Some(Ok(())));
        let gone = judged(json!({"command": "/nowhere/mgp", "args": ["stdio"]}));
        assert!(gone.unwrap().unwrap_err().contains("is not there"));
        let url = judged(json!({"url": "http://127.0.0.1:2/mcp?key=s3cret"}));
        let why = url.unwrap().unwrap_err();
        assert!(
            why.contains("127.0.0.1:2") && !why.contains("s3cret"),
            "{why}"
        );
        assert_eq!(
            judged(json!({"url": "http://127.0.0.1:1/mcp"})),
            Some(Ok(()))
        );
        // By any name, with a set, and by the other names of this machine.
        let renamed = json!({"url": "http://localhost:1/mcp/p/few"});
        let door = Some("http://127.0.0.1:1/mcp");
        assert_eq!(judge("kernel", &renamed, &exe, door), Some(Ok(())));
        let elsewhere = json!({"url": "https://docs.test/mcp"});
        assert_eq!(judge("docs", &elsewhere, &exe, door), None);
        assert!(
            judge("mgp-kernel", &elsewhere, &exe, door)
                .unwrap()
                .is_err()
        );
        let other = json!({"command": "npx", "args": ["stdio"]});
        assert_eq!(judge("files", &other, &exe, None), None);
    }
}
