//! Checks that clients' entries lead to this program and this kernel.

use std::path::Path;

use mgp_clients::{Client, command_words, entry_url, is_kernel_entry};
use serde_json::Value;

use super::CheckContext;
use super::finding::Finding;
use super::programs::find_program;
use crate::cli::commands::agents::endpoint_url;
use crate::cli::commands::servers::connect::ENTRY_NAMES;
use crate::cli::commands::servers::connect::client_file::ClientFileEdit;

const AREA: &str = "client";

pub(super) fn check(cx: &CheckContext<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut good = 0;
    let exe = std::env::current_exe().unwrap_or_default();
    let doors = cx.status.iter().flat_map(|status| &status.doors);
    let door = doors.filter_map(|door| endpoint_url(door)).next();
    for client in Client::ALL {
        let Ok(file) = ClientFileEdit::open_user_file(cx.context, client) else {
            continue;
        };
        if !file.exists() {
            continue;
        }
        let Ok(document) = client.document_form().parse(file.text()) else {
            let message = format!("{} cannot be read", file.path.display());
            found.push(Finding::warning(AREA, message));
            continue;
        };
        let table = client.table_path(&document);
        let table = table
            .iter()
            .try_fold(&document, |value, key| value.get(key));
        for (name, entry) in table.map(Client::entries).unwrap_or_default() {
            match check_entry(name, entry, &exe, door) {
                None => {}
                Some(Ok(())) => good += 1,
                Some(Err(why)) => {
                    let message = format!("{client}, {name} in {}: {why}", file.path.display());
                    let command = format!("mgp connect {}", client.cli_name());
                    found.push(Finding::warning(AREA, message).with_command(command));
                }
            }
        }
    }
    if good > 0 {
        found.push(Finding::good(AREA, format!("{good} lead to this kernel")));
    }
    found
}

/// Whether this kernel's entry is right; `None` for the entry of another server.
fn check_entry(
    name: &str,
    entry: &Value,
    exe: &Path,
    door: Option<&str>,
) -> Option<Result<(), String>> {
    let leads = is_kernel_entry(entry, door.unwrap_or_default());
    match (entry_url(entry), door) {
        (None, _) if leads => Some(check_command(command_words(entry).first()?, exe)),
        (Some(_), _) if leads => Some(Ok(())),
        // An entry that this kernel wrote may have its previous address.
        (Some(address), Some(door)) if ENTRY_NAMES.contains(&name) => Some(Err(format!(
            "it reaches {}, and the kernel that runs listens at {door}",
            mgp_protocol::redacted_url::redact_url(address)
        ))),
        (Some(_) | None, _) => None,
    }
}

fn check_command(command: &str, exe: &Path) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let Some(place) = find_program(command, &path) else {
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
    fn entries_of_this_kernel_and_others_are_distinguished() {
        let exe = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("mgp");
        std::os::unix::fs::symlink(&exe, &here).unwrap();
        let judged =
            |entry: Value| check_entry("mgp", &entry, &exe, Some("http://127.0.0.1:1/mcp"));
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
        // Under any name, with a set, and by the other names of this machine.
        let renamed = json!({"url": "http://localhost:1/mcp/p/few"});
        let door = Some("http://127.0.0.1:1/mcp");
        assert_eq!(check_entry("kernel", &renamed, &exe, door), Some(Ok(())));
        let elsewhere = json!({"url": "https://docs.test/mcp"});
        assert_eq!(check_entry("docs", &elsewhere, &exe, door), None);
        assert!(
            check_entry("mgp-kernel", &elsewhere, &exe, door)
                .unwrap()
                .is_err()
        );
        let other = json!({"command": "npx", "args": ["stdio"]});
        assert_eq!(check_entry("files", &other, &exe, None), None);
    }
}
