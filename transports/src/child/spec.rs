//! What is started, and its environment: only a short list of the kernel's variables.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use mgp_platform::processes::MARK_VARIABLE;
use mgp_platform::sandbox::SERVER_PREFIX;
use mgp_protocol::ids::ServerId;

/// Variables that every server inherits from the kernel: the user, the locale, and certificates. `LC_*` belongs to them,
/// too.
///
/// Excluded on purpose: `XDG_RUNTIME_DIR`, which leads to the session's sockets and the kernel's own; proxies, whose
/// addresses may hold passwords; `LD_*`, which is for the kernel's own libraries. A server that needs them lists them in
/// `inherit_env`.
pub(crate) const BASE_ENVIRONMENT: [&str; 16] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
];

/// A program that starts the server in its place, in the same process. After `args` it receives the path of the
/// server's program, the name to call it by and its arguments.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program.
    pub exe: PathBuf,
    /// Its first arguments.
    pub args: Vec<String>,
    /// Its own variables. It receives the server's under [`SERVER_PREFIX`], so that they do not affect the launcher, which
    /// is not sandboxed yet.
    pub env: BTreeMap<String, String>,
    /// It stays above the server, and ends all of its processes on SIGQUIT.
    pub stays: bool,
}

/// What is needed to start a server.
#[derive(Clone)]
pub struct ChildSpec {
    /// The server; part of the mark.
    pub id: ServerId,
    /// A program's name, looked up in the child's `PATH`, or a path.
    pub command: String,
    /// Its arguments, passed unchanged; no shell reads them.
    pub args: Vec<String>,
    /// Its variables. Values may be secrets.
    pub env: BTreeMap<String, String>,
    /// Further variables that it inherits from the kernel.
    pub inherit_env: Vec<String>,
    /// Its working folder; the kernel's if `None`.
    pub cwd: Option<PathBuf>,
    /// Unguessable, and new with each start of the kernel.
    pub kernel_mark: String,
    /// The program that starts it; the kernel itself if `None`.
    pub launcher: Option<Launcher>,
}

/// Omits values and arguments: both may hold secrets.
impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("id", &self.id)
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &self.env.keys())
            .field("inherit_env", &self.inherit_env)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

impl ChildSpec {
    /// The environment of the child, from the `kernel`'s: the base list, the inherited variables, the set ones, and the
    /// mark; later ones override earlier ones.
    pub(super) fn environment(
        &self,
        kernel: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> BTreeMap<OsString, OsString> {
        let mut all: BTreeMap<_, _> = kernel
            .into_iter()
            .filter(|(name, _)| name.to_str().is_some_and(|name| self.is_inherited(name)))
            .collect();
        all.extend(
            self.env
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        all.insert(MARK_VARIABLE.into(), self.mark().into());
        all
    }

    /// The environment of the launcher: its own variables, the server's with a prefix, and the mark, by which the process
    /// is found from its start on.
    pub(super) fn launcher_environment(
        &self,
        launcher: &Launcher,
        environment: &BTreeMap<OsString, OsString>,
    ) -> BTreeMap<OsString, OsString> {
        let prefixed = environment.iter().map(|(name, value)| {
            let mut prefixed_name = OsString::from(SERVER_PREFIX);
            prefixed_name.push(name);
            (prefixed_name, value.clone())
        });
        let launcher_variables = launcher.env.iter();
        let mut all: BTreeMap<_, _> = prefixed
            .chain(launcher_variables.map(|(name, value)| (name.into(), value.into())))
            .collect();
        all.insert(MARK_VARIABLE.into(), self.mark().into());
        all
    }

    fn is_inherited(&self, name: &str) -> bool {
        BASE_ENVIRONMENT.contains(&name)
            || name.starts_with("LC_")
            || self.inherit_env.iter().any(|wanted| wanted == name)
    }

    fn mark(&self) -> String {
        format!("{}:{}", self.kernel_mark, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_are_inherited() {
        let kernel = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("MGP_TOKEN", "secret"),
            ("AWS_SECRET", "secret"),
            ("WANTED", "1"),
            ("MGP_SERVER", "other:x"),
        ];
        let spec = ChildSpec {
            id: ServerId::new("a"),
            command: "x".into(),
            args: vec![],
            env: [("PATH", "/opt"), ("KEY", "own"), (MARK_VARIABLE, "forged")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            inherit_env: vec!["WANTED".into(), "ABSENT".into(), MARK_VARIABLE.into()],
            cwd: None,
            kernel_mark: "m".into(),
            launcher: None,
        };
        let got = spec.environment(kernel.map(|(name, value)| (name.into(), value.into())));
        let want = [
            ("KEY", "own"),
            ("LC_ALL", "C"),
            ("MGP_SERVER", "m:a"),
            ("PATH", "/opt"),
            ("WANTED", "1"),
        ];
        let want = want.map(|(name, value)| (name.into(), value.into()));
        assert_eq!(got, BTreeMap::from(want));
        assert!(!format!("{spec:?}").contains("own"));
    }
}
