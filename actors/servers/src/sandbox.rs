//! Starts servers in a sandbox: detects what this machine supports, prepares the server's own folder, and has a
//! launcher start the server under its policy. Used by the supervisors of servers, and for the process that runs
//! the embedding model.
//!
//! The launcher is the kernel's own program, started again with a hidden argument ([`mgp_platform::sandbox`]).

mod egress;
mod path_resolution;
mod probe;
mod program_pins;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use mgp_engine::servers::sandbox::{ProgramPaths, SandboxConfig, SandboxPolicy, SandboxSupport};
use mgp_platform::sandbox::{
    KERNEL_PID_VARIABLE, LAUNCH_ARGUMENT, LAUNCHER_STAYS, NOT_HELD, POLICY_VARIABLE,
};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::permission::Standard;
use mgp_protocol::mgp::servers::Sandbox;
use mgp_transports::child::{self, ChildSpec, Launcher};
use tokio::sync::OnceCell;

use mgp_runtime::task;
use mgp_store::removal;
use path_resolution::{PathAccess, PathResolver, is_within};

pub(crate) use egress::{EgressProxy, EgressSocket};
pub use probe::probe;
pub(crate) use program_pins::check_seal;
pub use program_pins::{compute_sha256, find_change, pin_programs};

/// The bytes of a script's first line that the system reads.
const SHEBANG_BYTES_MAX: u64 = 256;
/// How many levels of scripts that interpret scripts are followed, as the system does.
const INTERPRETER_DEPTH_MAX: usize = 4;

/// The settings shared by all sandboxes.
#[derive(Debug, Default)]
pub struct Sandboxes {
    /// The kernel's program.
    pub exe: PathBuf,
    /// The parent of each server's own folder.
    pub folder: PathBuf,
    /// The kernel's configuration, data and socket.
    pub kernel_paths: Vec<PathBuf>,
    /// The home of the kernel's user.
    pub home: Option<PathBuf>,
    /// Folders that were ever opened for writing, by the configuration or by a server started since. Links in
    /// them are not followed outside. None is removed, because links planted there stay.
    pub writable_folders: Mutex<BTreeSet<PathBuf>>,
    /// What this machine supports; detected at the first use.
    pub machine: OnceCell<SandboxSupport>,
}

/// A prepared sandbox for one start of a server.
#[derive(Debug)]
pub(crate) struct PreparedSandbox {
    /// The process to start: the launcher, with the server as its argument.
    pub(crate) spec: ChildSpec,
    /// The restrictions of the server.
    pub(crate) report: Sandbox,
    /// Receives its only way out, if its destinations are limited.
    pub(crate) egress: Option<EgressSocket>,
}

impl Sandboxes {
    /// The server's own folder; its home is inside.
    #[must_use]
    pub fn server_folder(&self, server: &ServerId) -> PathBuf {
        self.sibling_folder("of", server)
    }

    /// The folder of the program registered with a server. It is neither inside nor above the server's own
    /// folder, so that the server cannot write where interpreters look for modules.
    #[must_use]
    pub fn code_folder(&self, server: &ServerId) -> PathBuf {
        self.sibling_folder("code-of", server)
    }

    fn sibling_folder(&self, what: &str, server: &ServerId) -> PathBuf {
        // A server id may be "..".
        let folder = self.folder.join(format!("{what}-{server}"));
        // The server's working folder differs from the kernel's, so the path must be absolute.
        std::path::absolute(&folder).unwrap_or(folder)
    }

    /// True for a folder (without links) that no sandbox opens: the kernel's files, or a whole home.
    pub(crate) fn is_protected(&self, folder: &Path) -> bool {
        let paths = ProgramPaths {
            kernel_paths: self
                .kernel_paths
                .iter()
                .map(|path| real_path(path))
                .collect(),
            home: self.home.as_deref().map(real_path),
            ..ProgramPaths::default()
        };
        paths.is_protected(folder)
    }

    /// Prepares the start of a server with these permissions.
    ///
    /// # Errors
    /// What is missing, as text.
    pub(crate) async fn prepare(
        &self,
        spec: ChildSpec,
        rules: &SandboxConfig,
        granted: &BTreeSet<Standard>,
    ) -> Result<PreparedSandbox, String> {
        let machine = self
            .machine
            .get_or_try_init(|| probe::run_probe(&self.exe))
            .await;
        let machine = *machine.map_err(|e| format!("the sandbox cannot be tried out: {e}"))?;
        let own = self.server_folder(&spec.id);
        let mut paths = ProgramPaths {
            own_dir: own,
            code_dir: rules.program.as_ref().map(|_| self.code_folder(&spec.id)),
            kernel_paths: self.kernel_paths.clone(),
            home: self.home.clone(),
            ..ProgramPaths::default()
        };
        let (looked, mut rules, granted) = (spec.clone(), rules.clone(), granted.clone());
        let server_folders =
            real_path(&std::path::absolute(&self.folder).unwrap_or(self.folder.clone()));
        let written = {
            let mut written = self
                .writable_folders
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            written.extend(rules.write.iter().cloned());
            written.clone()
        };
        let looking = task::run_blocking("sandbox.prepare", move || {
            let (resolver, mut notes) =
                resolve_paths(&looked, &mut paths, &mut rules, &written, &server_folders)?;
            prepare_folders(&paths.own_dir)
                .map_err(|e| format!("{}: {e}", paths.own_dir.display()))?;
            let is_limited = rules.egress.is_some()
                && granted.contains(&Standard::NetworkOutbound)
                && machine.namespaces;
            let egress = if is_limited {
                let folder = paths.own_dir.parent().unwrap_or(&server_folders);
                let socket = EgressSocket::open(folder)
                    .map_err(|e| format!("the socket for its proxy: {e}"))?;
                paths.egress_socket = Some(socket.path().to_owned());
                Some(socket)
            } else {
                None
            };
            let user = if machine.root {
                Some(users::assign_user(&paths.own_dir, machine.namespaces)?)
            } else {
                None
            };
            if let (Some(code), Some(user)) = (&paths.code_dir, user) {
                users::grant_read(code, user).map_err(|e| format!("{}: {e}", code.display()))?;
            }
            let mut policy = SandboxPolicy::for_server(&granted, &rules, &paths, machine);
            policy.user = user;
            let mut report = match NOT_HELD {
                None => policy.report(&granted, &rules, &paths),
                Some(why) => Sandbox {
                    missing: vec![why.to_owned()],
                    ..Sandbox::default()
                },
            };
            notes.extend(resolver.finish(&mut policy));
            report.notes.extend(notes);
            if user.is_some() {
                report.notes.extend(users::find_unreachable(&policy));
            }
            let variables = egress.as_ref().map(|_| {
                egress::proxy_variables(rules.egress.as_deref().unwrap_or_default()).collect()
            });
            Ok::<_, String>((
                policy,
                report,
                paths.own_dir,
                egress,
                variables.unwrap_or_default(),
            ))
        });
        let (policy, report, own, egress, variables): (_, _, _, _, Vec<_>) =
            looking.await.map_err(|e| e.to_string())??;
        Ok(PreparedSandbox {
            spec: self.wrap_in_launcher(spec, &policy, &own, variables),
            report,
            egress,
        })
    }

    fn wrap_in_launcher(
        &self,
        mut spec: ChildSpec,
        policy: &SandboxPolicy,
        own: &Path,
        variables: Vec<(&'static str, String)>,
    ) -> ChildSpec {
        for (name, folder) in [("HOME", HOME), ("TMPDIR", TMP)] {
            let folder = own.join(folder).display().to_string();
            spec.env.entry(name.to_owned()).or_insert(folder);
        }
        let variables = variables.into_iter();
        spec.env
            .extend(variables.map(|(name, value)| (name.to_owned(), value)));
        let policy = serde_json::to_string(policy).expect("a policy is always JSON");
        spec.launcher = Some(Launcher {
            exe: self.exe.clone(),
            args: vec![LAUNCH_ARGUMENT.to_owned(), "--".to_owned()],
            env: BTreeMap::from([
                (POLICY_VARIABLE.to_owned(), policy),
                (
                    KERNEL_PID_VARIABLE.to_owned(),
                    std::process::id().to_string(),
                ),
            ]),
            stays: LAUNCHER_STAYS,
        });
        spec
    }
}

const HOME: &str = "home";
const TMP: &str = "tmp";

/// Creates the server's own folder and empties its temporary folder.
fn prepare_folders(own: &Path) -> io::Result<()> {
    let private = |path: &Path| {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
    };
    private(&own.join(HOME))?;
    removal::remove(&own.join(TMP))?;
    private(&own.join(TMP))
}

/// Resolves a server's paths, without symbolic links; returns descriptions of the links not followed.
fn resolve_paths(
    spec: &ChildSpec,
    paths: &mut ProgramPaths,
    rules: &mut SandboxConfig,
    written: &BTreeSet<PathBuf>,
    server_folders: &Path,
) -> Result<(PathResolver, BTreeSet<String>), String> {
    let (program, programs) = child::find_program(spec).map_err(|e| e.to_string())?;
    paths.own_dir = std::path::absolute(&paths.own_dir).map_err(|e| e.to_string())?;
    for kernels in paths.kernel_paths.iter_mut().chain(&mut paths.home) {
        *kernels = real_path(kernels);
    }
    let (mut resolver, mut notes) = (
        PathResolver::new(written, paths, server_folders),
        BTreeSet::new(),
    );
    let mut resolve = |path: &Path, to| match resolver.resolve(path, to) {
        Ok(real) => Some(real),
        Err(why) => {
            notes.insert(why);
            None
        }
    };
    rules.read = rules
        .read
        .iter()
        .filter_map(|p| resolve(p, PathAccess::Read))
        .collect();
    rules.write = rules
        .write
        .iter()
        .filter_map(|p| resolve(p, PathAccess::Write))
        .collect();
    let cwd = spec.cwd.as_deref().unwrap_or(Path::new("/"));
    let cwd = std::path::absolute(cwd).map_err(|e| e.to_string())?;
    let named = spec.args.iter().map(|arg| cwd.join(arg));
    let named = named.filter(|path| path.is_file());
    paths.argument_files = named
        .filter_map(|p| resolve(&p, PathAccess::Read))
        .collect();
    // Files in the working folder stay closed; a whole tree is never opened.
    paths.cwd = resolve(&cwd, PathAccess::Read).unwrap_or(PathBuf::from("/"));
    paths.found_in_path = !spec.command.contains('/') && !spec.env.contains_key("PATH");
    paths.path_dirs = programs
        .iter()
        .filter_map(|folder| resolve(folder, PathAccess::Read))
        .collect();
    paths.program = resolver.resolve(&program, PathAccess::Read)?;
    paths.interpreters = find_interpreters(&program, &programs, &mut resolver, &mut notes);
    // A virtual environment is found through the link to its interpreter, so that link is opened.
    if let (Some(folder), Some(name)) = (program.parent(), program.file_name()) {
        let folder = resolver.resolve(folder, PathAccess::Read)?;
        paths.interpreters.push(folder.join(name));
    }
    Ok((resolver, notes))
}

/// The path without symbolic links, as far as it exists.
fn real_path(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => real_path(folder).join(name),
        _ => path.to_owned(),
    }
}

/// The interpreters of a script: the program in its first line, and the one that `env` finds. For scripts that
/// the server can write, nothing new is opened.
fn find_interpreters(
    program: &Path,
    programs: &[PathBuf],
    resolver: &mut PathResolver,
    notes: &mut BTreeSet<String>,
) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut next = Some(program.to_owned());
    while let Some(script) = next.take().filter(|_| found.len() < INTERPRETER_DEPTH_MAX) {
        let Ok(at) = resolver.resolve(&script, PathAccess::Read) else {
            break;
        };
        let root = at
            .parent()
            .and_then(|folder| resolver.innermost_writable(folder));
        let Some(line) = read_first_line(&at) else {
            break;
        };
        let mut words = line.split_ascii_whitespace();
        let Some(interpreter) = words.next().map(PathBuf::from) else {
            break;
        };
        if interpreter.ends_with("env") {
            let wanted = words.find(|word| !word.starts_with('-') && !word.contains('='));
            let looked_up = programs.iter().map(|f| f.join(wanted.unwrap_or_default()));
            next = looked_up.into_iter().find(|path| path.is_file());
        }
        for named in [Some(interpreter.clone()), next.clone()]
            .into_iter()
            .flatten()
        {
            let target = resolver.resolve(&named, PathAccess::Read).and_then(|target| {
                let opens = root
                    .as_ref()
                    .is_none_or(|root| is_within(&target, root, PathAccess::Read));
                opens.then_some(target).ok_or_else(|| {
                    format!(
                        "{} is not opened: {} names it in its first line, and sandboxed servers write that file",
                        named.display(),
                        at.display()
                    )
                })
            });
            match target {
                Ok(target) => found.push(target),
                Err(why) => {
                    notes.insert(why);
                    return found;
                }
            }
        }
        next = next.or(Some(interpreter));
    }
    found
}

fn read_first_line(script: &Path) -> Option<String> {
    let mut start = Vec::new();
    File::open(script)
        .ok()?
        .take(SHEBANG_BYTES_MAX)
        .read_to_end(&mut start)
        .ok()?;
    let rest = start.strip_prefix(b"#!")?;
    let line = rest.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn interpreters_are_found_through_env_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        let write = |name: &str, text: &str| {
            fs::write(at(name), text).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("node-22", "\u{7f}ELF");
        std::os::unix::fs::symlink(at("node-22"), at("node")).unwrap();
        write("serve", "#!/usr/bin/env -S node --quiet\n");
        let interpreters = |script: &Path, programs: &[PathBuf]| {
            find_interpreters(
                script,
                programs,
                &mut PathResolver::default(),
                &mut BTreeSet::new(),
            )
        };
        let found = interpreters(&at("serve"), &[at("")]);
        assert_eq!(found, [real_path(Path::new("/usr/bin/env")), at("node-22")]);
        write("loop", &format!("#!{}\n", at("loop").display()));
        assert!(interpreters(&at("loop"), &[]).len() <= INTERPRETER_DEPTH_MAX + 1);
        assert!(interpreters(&at("node"), &[]).is_empty());
    }

    #[test]
    fn missing_path_is_resolved_through_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, link) = (folder.path().join("whole"), folder.path().join("link"));
        fs::create_dir(&whole).unwrap();
        std::os::unix::fs::symlink(&whole, &link).unwrap();
        let real_folder = whole.canonicalize().unwrap();
        assert_eq!(real_path(&link.join("a/b")), real_folder.join("a/b"));
    }

    /// The working folder, an argument and the interpreter are in places that the server can write.
    #[test]
    fn planted_links_open_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(at("work/bin")).unwrap();
        fs::create_dir_all(at("keys/bin")).unwrap();
        fs::write(at("keys/bin/key"), "").unwrap();
        let program = at("work/serve");
        fs::write(&program, format!("#!{}\n", at("keys/bin/key").display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink(at("keys"), at("work/cwd")).unwrap();
        std::os::unix::fs::symlink(at("keys/bin/key"), at("work/conf.json")).unwrap();
        let mut spec = ChildSpec {
            id: ServerId::new("it"),
            command: program.display().to_string(),
            args: vec![at("work/conf.json").display().to_string()],
            cwd: Some(at("work/cwd")),
            env: BTreeMap::new(),
            inherit_env: Vec::new(),
            kernel_mark: String::new(),
            launcher: None,
        };
        let look = |spec: &ChildSpec, written: &[PathBuf]| {
            let mut paths = ProgramPaths {
                own_dir: at("owns/of-it"),
                ..ProgramPaths::default()
            };
            let mut rules = SandboxConfig::default();
            let written = written.iter().cloned().collect();
            let looked = resolve_paths(spec, &mut paths, &mut rules, &written, &at("owns"));
            looked.map(|(_, notes)| (paths, notes))
        };
        let keys = |paths: &ProgramPaths| {
            let all = paths.interpreters.iter().chain(&paths.argument_files);
            all.chain([&paths.cwd])
                .filter(|path| path.starts_with(at("keys")))
                .count()
        };
        let (paths, notes) = look(&spec, &[]).unwrap();
        assert_eq!((keys(&paths), notes.len()), (3, 0), "{paths:?}");
        let (paths, notes) = look(&spec, &[at("work")]).unwrap();
        assert_eq!((keys(&paths), notes.len()), (0, 3), "{paths:?} {notes:?}");
        spec.command = at("work/conf.json").display().to_string();
        fs::set_permissions(at("keys/bin/key"), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(look(&spec, &[at("work")]).is_err());
    }
}
