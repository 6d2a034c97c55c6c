//! The stored environment of the user. A client or the system starts a kernel with few variables; its servers would
//! then trust other authorities, or use another time zone, than after a start in a terminal.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use mgp_store::{atomic_file, regular_file};

/// In the data folder.
const FILE_NAME: &str = "environment.json";

/// Holds the names of restored variables; for `mgp doctor`.
pub(crate) const RESTORED_VARIABLES: &str = "MGP_RESTORED_VARIABLES";

/// Where programs are, the user's language, and the trusted authorities; `LC_*` is added. None of them holds a
/// secret; proxies are below.
const STORED_NAMES: [&str; 10] = [
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
];

/// In lower or upper case; stored without user and password.
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];

/// Longest value that is stored: a long `PATH` has a few KiB.
const VALUE_MAX: usize = 16 << 10;

/// Most variables that are stored: those above, and the twelve of `LC_*`.
const VARIABLES_MAX: usize = 48;

pub(crate) type Variables = BTreeMap<String, String>;

/// Before a kernel runs in this process: executes this program again with the missing variables, because a process
/// cannot safely change its own. Does not return then.
pub(crate) fn restore_and_exec(data_dir: &Path) {
    if env::var_os(RESTORED_VARIABLES).is_some() || io::stdin().is_terminal() {
        return;
    }
    let missing = unset_variables(read(data_dir), |name| env::var_os(name).is_some());
    if missing.is_empty() {
        return;
    }
    let names: Vec<&str> = missing.keys().map(String::as_str).collect();
    let names = names.join(",");
    let mut arguments = env::args_os();
    let Ok(program) = env::current_exe() else {
        return;
    };
    let mut again = Command::new(program);
    arguments.next().into_iter().for_each(|name| {
        again.arg0(name);
    });
    again
        .args(arguments)
        .envs(&missing)
        .env(RESTORED_VARIABLES, names);
    let error = again.exec();
    eprintln!("mgp: the variables of the last start were not restored: {error}");
}

/// Stores this process's environment if it is that of a terminal, or complete while none is stored. Called once the
/// kernel runs, so that a rejected start changes nothing.
pub(crate) fn store(data_dir: &Path) {
    if env::var_os(RESTORED_VARIABLES).is_some() {
        return;
    }
    let here = select_stored(env::vars_os());
    let is_first = || !data_dir.join(FILE_NAME).exists();
    let counts = io::stdin().is_terminal() || is_first() && is_complete(|name| env::var_os(name));
    if !counts || here == read(data_dir) {
        return;
    }
    let stored = atomic_file::create_folder(data_dir).and_then(|()| {
        atomic_file::write(
            &data_dir.join(FILE_NAME),
            &serde_json::to_vec_pretty(&here)?,
        )
    });
    if let Err(error) = stored {
        eprintln!("mgp: the environment is not stored for kernels that clients start: {error}");
    }
}

/// Whether an environment is that of a user's session, which includes the language.
fn is_complete(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let speaks = ["LANG", "LC_ALL", "LC_CTYPE"];
    ["PATH", "HOME", "SHELL"].into_iter().all(is_set) && speaks.into_iter().any(is_set)
}

/// Selects the variables to store.
pub(crate) fn select_stored(all: impl IntoIterator<Item = (OsString, OsString)>) -> Variables {
    let texts = all
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let fitting = texts.filter(|(_, value)| !value.is_empty() && value.len() <= VALUE_MAX);
    let selected = fitting.filter_map(|(name, value)| {
        let value = match is_proxy(&name) {
            true => strip_login(&value)?,
            false if STORED_NAMES.contains(&&*name) || name.starts_with("LC_") => value,
            false => return None,
        };
        Some((name, value))
    });
    selected.take(VARIABLES_MAX).collect()
}

fn is_proxy(name: &str) -> bool {
    let small = name.to_ascii_lowercase();
    PROXIES.contains(&&*small) && (name == small || name == name.to_ascii_uppercase())
}

/// Proxies without their logins; `None` if nothing remains.
fn strip_login(value: &str) -> Option<String> {
    let parts = value.split(',').map(|part| {
        let (scheme, rest) = match part.split_once("://") {
            Some((scheme, rest)) => (format!("{scheme}://"), rest),
            None => (String::new(), part),
        };
        // A password may contain any of the other separators.
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        scheme + host
    });
    let whole = match value.contains('@') && value.contains(',') && value.contains("://") {
        // A comma in a password: its end is unknown.
        true => return None,
        false => parts.collect::<Vec<_>>().join(","),
    };
    (!whole.is_empty()).then_some(whole)
}

/// The stored variables that are not set. A proxy counts as set in lower and upper case.
fn unset_variables(stored: Variables, is_set: impl Fn(&str) -> bool) -> Variables {
    let is_absent = |name: &String| {
        !is_set(name)
            && !(is_proxy(name)
                && (is_set(&name.to_ascii_lowercase()) || is_set(&name.to_ascii_uppercase())))
    };
    let mut missing = stored;
    missing.retain(|name, _| is_absent(name));
    missing
}

/// The stored variables; none if the file cannot be read or is larger than anything stored.
fn read(data_dir: &Path) -> Variables {
    let bytes = regular_file::read(&data_dir.join(FILE_NAME)).unwrap_or_default();
    let stored: BTreeMap<OsString, OsString> = serde_json::from_slice::<Variables>(&bytes)
        .unwrap_or_default()
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    select_stored(stored)
}

/// Why the stored variables cannot be read; for `mgp doctor`.
pub(crate) fn unread(data_dir: &Path) -> Option<String> {
    let path = data_dir.join(FILE_NAME);
    let why = match regular_file::read(&path) {
        Ok(bytes) => serde_json::from_slice::<Variables>(&bytes)
            .err()?
            .to_string(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => error.to_string(),
    };
    Some(format!("{}: {why}", path.display()))
}

/// Variables set here that differ there. `PATH` differs from shell to shell; only the programs that it finds
/// matter.
pub(crate) fn differences(here: &Variables, there: &Variables) -> Vec<String> {
    let differs =
        |(name, value): &(&String, &String)| *name != "PATH" && there.get(*name) != Some(*value);
    let names = here.iter().filter(differs);
    names.map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(all: &[(&str, &str)]) -> Variables {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        all.iter().map(own).collect()
    }

    fn selected(all: &[(&str, &str)]) -> Variables {
        select_stored(
            variables(all)
                .into_iter()
                .map(|(n, v)| (n.into(), v.into())),
        )
    }

    #[test]
    fn no_secret_of_an_environment_is_stored() {
        let all = [
            ("AWS_SECRET_ACCESS_KEY", "s3cret"),
            ("GITHUB_TOKEN", "s3cret"),
            ("HTTPS_PROXY", "http://me:s3cret@proxy.lan:3128"),
            ("all_proxy", "socks5://me:s3c@ret@proxy.lan"),
            ("http_proxy", "me:s3cret@proxy.lan:3128"),
            ("HTTP_PROXY", "http://me:s3cret,more@proxy.lan"),
            ("no_proxy", "localhost,.lan"),
            ("Http_Proxy", "http://me:s3cret@proxy.lan"),
            ("TZ", "Europe/Berlin"),
            ("LC_TIME", "de_DE.UTF-8"),
            ("LANG", ""),
        ];
        let stored = variables(&[
            ("HTTPS_PROXY", "http://proxy.lan:3128"),
            ("LC_TIME", "de_DE.UTF-8"),
            ("TZ", "Europe/Berlin"),
            ("all_proxy", "socks5://proxy.lan"),
            ("http_proxy", "proxy.lan:3128"),
            ("no_proxy", "localhost,.lan"),
        ]);
        assert_eq!(selected(&all), stored);
    }

    #[test]
    fn only_variables_that_are_absent_are_restored() {
        let stored = variables(&[
            ("TZ", "Europe/Berlin"),
            ("LANG", "de_DE.UTF-8"),
            ("HTTPS_PROXY", "http://proxy.lan"),
            ("http_proxy", "http://proxy.lan"),
        ]);
        let set = |name: &str| ["LANG", "https_proxy"].contains(&name);
        let restored = variables(&[("TZ", "Europe/Berlin"), ("http_proxy", "http://proxy.lan")]);
        assert_eq!(unset_variables(stored, set), restored);
    }

    #[test]
    fn an_environment_without_a_language_or_a_shell_is_not_complete() {
        let has = |names: &'static [&str]| {
            is_complete(move |name| names.contains(&name).then(|| "x".into()))
        };
        assert!(has(&["PATH", "HOME", "SHELL", "LANG"]));
        assert!(has(&["PATH", "HOME", "SHELL", "LC_CTYPE"]));
        // The variables that MCP SDKs pass on, and those of a service manager.
        assert!(!has(&["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"]));
        assert!(!has(&["PATH", "HOME", "LANG"]));
    }

    #[test]
    fn differences_are_listed_by_name_without_path() {
        let here = variables(&[
            ("PATH", "/a"),
            ("TZ", "UTC"),
            ("LANG", "C"),
            ("LC_ALL", "C"),
        ]);
        let there = variables(&[
            ("PATH", "/b"),
            ("TZ", "CET"),
            ("LANG", "C"),
            ("LC_TIME", "C"),
        ]);
        assert_eq!(differences(&here, &there), ["LC_ALL", "TZ"]);
    }

    /// A start ignores such a file, so only `mgp doctor` reports it.
    #[test]
    fn a_stored_environment_that_is_broken_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(unread(folder.path()), None);
        for (text, good) in [
            ("{\"TZ\": \"UTC\"}", true),
            ("{\"TZ\": ", false),
            ("[1]", false),
        ] {
            std::fs::write(folder.path().join(FILE_NAME), text).unwrap();
            let why = unread(folder.path());
            assert_eq!(why.is_none(), good, "{why:?}");
            assert!(good || why.unwrap().contains(FILE_NAME));
        }
    }
}
