//! Resolves paths safely. A server can put links into folders it can write, so a link there may lead only to the
//! same folder, or to what every server may read.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use mgp_engine::servers::sandbox::{ProgramPaths, SandboxPolicy, is_system_path};
use mgp_platform::files;

/// The maximum of links followed in one path, as in the system.
const LINKS_MAX: usize = 40;
/// How often resolving is repeated, because a writable folder may be named through links in another one.
const ROUNDS_MAX: usize = 8;

/// The access for which a path is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathAccess {
    Read,
    Write,
}

/// Resolves paths, with the folders where links are restricted, and records followed links.
#[derive(Debug, Default)]
pub(super) struct PathResolver {
    /// Folders that sandboxed servers can write.
    writable: BTreeSet<PathBuf>,
    /// The parent of each server's own folder.
    server_folders: PathBuf,
    /// The followed links.
    links: BTreeMap<PathBuf, PathBuf>,
}

impl PathResolver {
    /// Creates a resolver with all folders that were ever opened for writing, as configured.
    pub(super) fn new(
        named: &BTreeSet<PathBuf>,
        paths: &ProgramPaths,
        server_folders: &Path,
    ) -> Self {
        let mut resolver = Self {
            writable: named.clone(),
            server_folders: server_folders.to_owned(),
            links: BTreeMap::new(),
        };
        for _ in 0..ROUNDS_MAX {
            let resolved = named
                .iter()
                .filter_map(|path| resolver.resolve(path, PathAccess::Write).ok());
            let resolved: Vec<_> = resolved.collect();
            let mut written: BTreeSet<_> =
                resolved.into_iter().chain(named.iter().cloned()).collect();
            // A protected folder is never opened, so no server writes it.
            written.retain(|path| !paths.is_protected(path));
            if written == resolver.writable {
                break;
            }
            resolver.writable = written;
        }
        resolver.links.clear();
        resolver
    }

    /// The innermost folder around this one that a sandboxed server can write.
    pub(super) fn innermost_writable(&self, folder: &Path) -> Option<PathBuf> {
        if let Ok(below) = folder.strip_prefix(&self.server_folders) {
            return below
                .components()
                .next()
                .map(|own| self.server_folders.join(own));
        }
        let around = folder
            .ancestors()
            .find(|above| self.writable.contains(*above));
        around.map(Path::to_owned)
    }

    /// The path without symbolic links, as far as it exists.
    ///
    /// # Errors
    /// The reason why it is not opened, as text.
    pub(super) fn resolve(&mut self, path: &Path, to: PathAccess) -> Result<PathBuf, String> {
        // Other processes would see other files there.
        if !path.is_absolute() || files::is_per_process(path) {
            return Ok(path.to_owned());
        }
        let mut rest: Vec<_> = components(path).collect();
        rest.reverse();
        let mut at = PathBuf::from("/");
        let mut followed = Vec::new();
        while let Some(name) = rest.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            let Ok(target) = next.read_link() else {
                at = next;
                continue;
            };
            if followed.len() == LINKS_MAX {
                return Err(format!("{} is not opened: too many links", path.display()));
            }
            followed.push((self.innermost_writable(&at), next, target.clone()));
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            let through: Vec<_> = components(&target).collect();
            rest.extend(through.into_iter().rev());
        }
        for (root, link, target) in &followed {
            if !root.as_ref().is_none_or(|root| is_within(&at, root, to)) {
                return Err(format!(
                    "{} is not opened, for {} is a link to {}, and sandboxed servers write the folder it is in: put a \
                     folder or a file there, or name what is meant itself",
                    path.display(),
                    link.display(),
                    target.display()
                ));
            }
        }
        let own = followed.into_iter().map(|(_, link, target)| (link, target));
        self.links.extend(own);
        Ok(at)
    }

    /// Removes paths with links from the policy, so that none is followed later; returns them.
    pub(super) fn finish(mut self, policy: &mut SandboxPolicy) -> BTreeSet<String> {
        let mut notes = BTreeSet::new();
        for (paths, to) in [
            (&mut policy.read, PathAccess::Read),
            (&mut policy.execute, PathAccess::Read),
            (&mut policy.write, PathAccess::Write),
        ] {
            let named = std::mem::take(paths);
            for path in named {
                match self.resolve(&path, to) {
                    Ok(real) => paths.push(real),
                    Err(why) => {
                        notes.insert(why);
                    }
                }
            }
        }
        policy.links = self.links;
        notes
    }
}

/// True if a link from a writable folder leads to what its writers could open anyway.
pub(super) fn is_within(led_to: &Path, root: &Path, to: PathAccess) -> bool {
    led_to.starts_with(root) || (to == PathAccess::Read && is_system_path(led_to))
}

fn components(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_in_writable_folders_stay_inside() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        for name in ["data/sub", "keys", "owns/of-a", "owns/of-b"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("data"), at("named")).unwrap();
        symlink(at("keys"), at("data/planted")).unwrap();
        symlink("sub", at("data/within")).unwrap();
        symlink("/usr/bin", at("data/systems")).unwrap();
        symlink(at("owns/of-b"), at("owns/of-a/other")).unwrap();
        // One is named through the operator's link, one through a link that a server made.
        let named = BTreeSet::from([at("named"), at("data/planted")]);
        let paths = ProgramPaths::default();
        let mut resolver = PathResolver::new(&named, &paths, &at("owns"));
        assert!(!resolver.writable.contains(&at("keys")), "{resolver:?}");
        assert_eq!(
            resolver.resolve(&at("named/sub"), PathAccess::Write),
            Ok(at("data/sub"))
        );
        assert_eq!(
            resolver.resolve(&at("data/within/x"), PathAccess::Write),
            Ok(at("data/sub/x"))
        );
        for (path, to) in [
            ("data/planted", PathAccess::Read),
            ("named/planted/id", PathAccess::Write),
            ("owns/of-a/other", PathAccess::Read),
            ("data/systems", PathAccess::Write),
        ] {
            let why = resolver.resolve(&at(path), to).unwrap_err();
            assert!(why.contains("is a link to"), "{why}");
        }
        let systems = resolver
            .resolve(&at("data/systems"), PathAccess::Read)
            .unwrap();
        assert!(systems.starts_with("/usr"));
    }
}
