//! The clients of this user: whether their entries lead to this program and this kernel.

use std::path::Path;

use mgp_clients::Client;
use serde_json::Value;

use super::Patient;
use super::finding::DoctorFinding;
use super::programs::program;
use crate::cli::commands::agents::url;
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
    let words = words(entry);
    let command = words.first().map(String::as_str);
    let own = command.and_then(|command| Path::new(command).file_name());
    let own =
        own.is_some_and(|file| file == "mgp") && words.get(1).is_some_and(|word| word == "stdio");
    if let (true, Some(command)) = (own, command) {
        return Some(leads_here(command, exe));
    }
    let keys = ["url", "serverUrl", "httpUrl", "uri"];
    let address = keys.iter().find_map(|key| entry.get(key)?.as_str());
    match (name == "mgp", address, door) {
        (true, Some(address), Some(door)) if !address.starts_with(door) => Some(Err(format!(
            "it reaches {}, and the kernel that runs listens at {door}",
            mgp_protocol::address::shown(address)
        ))),
        (true, Some(_), Some(_)) => Some(Ok(())),
        _ => None,
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

/// The words of its command, whichever way the client writes it.
fn words(entry: &Value) -> Vec<String> {
    let texts = |value: Option<&Value>| -> Vec<String> {
        match value {
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(list)) => {
                let texts = list.iter().filter_map(Value::as_str);
                texts.map(str::to_owned).collect()
            }
            Some(_) | None => Vec::new(),
        }
    };
    let command = entry.get("command").or_else(|| entry.get("cmd"));
    // Zed had the words in a table of their own.
    let (command, args) = match command.filter(|command| command.is_object()) {
        Some(table) => (table.get("path"), table.get("args")),
        None => (command, entry.get("args")),
    };
    [texts(command), texts(args)].concat()
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
        let other = json!({"command": "npx", "args": ["stdio"]});
        assert_eq!(judge("files", &other, &exe, None), None);
    }
}
