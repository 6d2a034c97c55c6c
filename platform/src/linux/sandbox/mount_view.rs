//! The file tree of a sandboxed server: only what its policy opens, each path at its usual place. Paths that are
//! not writable are mounted read-only, so that neither contents nor metadata can change.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, umask};
use nix::unistd::pivot_root;

use super::nofollow;
use crate::launch::Policy;

/// Where the tree is built: exists on every system, and is usable again once the tree is the root.
const TREE_BASE: &str = "/proc";
/// The machine's own tree, until the new one is complete.
const OLD_ROOT: &str = "/.outside";
/// Options of the tree itself: folders, links and empty mount points, some for each path.
const ROOT_OPTIONS: &str = "mode=0755,size=4m,nr_inodes=65536";
/// Options of the shared memory of a server's processes; the default size of containers.
const SHM_OPTIONS: &str = "mode=1777,size=64m";
const SHM_PATH: &str = "/dev/shm";
/// Links that programs expect in `/dev`.
const DEV_LINKS: &[(&str, &str)] = &[
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// The paths to mount.
#[derive(Debug, Default)]
pub(super) struct MountView {
    /// Files and folders without links, and whether they are writable.
    opened: BTreeMap<PathBuf, bool>,
    /// Links in the paths to them.
    links: BTreeMap<PathBuf, PathBuf>,
}

impl MountView {
    /// Creates the view of a policy.
    pub(super) fn from_policy(policy: &Policy) -> Self {
        let mut view = Self {
            opened: BTreeMap::new(),
            links: policy.links.clone(),
        };
        let read = policy.read.iter().chain(&policy.execute);
        for path in read {
            view.open(path, false);
        }
        for path in &policy.write {
            // A device is writable although its mount is read-only.
            view.open(path, !path.starts_with("/dev"));
        }
        view
    }

    fn open(&mut self, path: &Path, writable: bool) {
        let made_anew = path.starts_with("/proc") || path == Path::new(SHM_PATH);
        if made_anew || !path.is_absolute() {
            return;
        }
        if path.parent().is_some() && nofollow::open(path).is_some() {
            *self.opened.entry(path.to_owned()).or_default() |= writable;
        }
    }

    /// True if this path is writable, by its nearest opened folder.
    fn is_writable(&self, path: &Path) -> bool {
        let around = path.ancestors().filter_map(|above| self.opened.get(above));
        around.copied().any(|writable| writable)
    }

    /// Makes the view the root of this process. The machine's own tree stays reachable until [`finish`].
    pub(super) fn build(&self, cwd: &Path) -> Result<(), String> {
        let usual = umask(Mode::from_bits_truncate(0o022));
        let built = self.mount_all(cwd);
        umask(usual);
        built
    }

    fn mount_all(&self, cwd: &Path) -> Result<(), String> {
        remount("/", MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
        mount_new(
            "tmpfs",
            TREE_BASE,
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
            ROOT_OPTIONS,
        )?;
        let outside = format!("{TREE_BASE}{OLD_ROOT}");
        fs::create_dir(&outside).map_err(|e| format!("{outside}: {e}"))?;
        pivot_root(TREE_BASE, outside.as_str()).map_err(|e| format!("a root of its own: {e}"))?;
        std::env::set_current_dir("/").map_err(|e| e.to_string())?;
        for folder in ["/proc", SHM_PATH] {
            make_folder(Path::new(folder))?;
        }
        for (path, writable) in &self.opened {
            let above = path.parent().is_some_and(|above| self.is_covered(above));
            let same = path.parent().is_some_and(|above| self.is_writable(above));
            if !above || (*writable && !same) {
                bind(path)?;
            }
        }
        self.create_links();
        self.remount_read_only()?;
        // The policy may not open the working folder.
        make_folder(cwd)?;
        std::env::set_current_dir(cwd).map_err(|e| format!("{}: {e}", cwd.display()))
    }

    fn is_covered(&self, path: &Path) -> bool {
        path.ancestors()
            .any(|above| self.opened.contains_key(above))
    }

    /// Creates the links; one that fails is only missing for this server.
    fn create_links(&self) {
        let usual = DEV_LINKS
            .iter()
            .map(|(at, to)| (Path::new(at), Path::new(to)));
        let own = self
            .links
            .iter()
            .map(|(at, to)| (at.as_path(), to.as_path()));
        for (at, to) in own.chain(usual).filter(|(at, _)| !self.is_covered(at)) {
            if at
                .parent()
                .is_some_and(|folder| make_folder(folder).is_ok())
            {
                let _ = std::os::unix::fs::symlink(to, at);
            }
        }
    }

    /// Remounts all mounts: read-only except what is writable, and without set-id programs.
    fn remount_read_only(&self) -> Result<(), String> {
        let table = format!("{OLD_ROOT}/proc/self/mountinfo");
        let table = fs::read(&table).map_err(|e| format!("{table}: {e}"))?;
        for line in table.split(|byte| *byte == b'\n') {
            let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
            let [_, _, _, _, at, options, ..] = fields.as_slice() else {
                continue;
            };
            let at = unescape(at);
            if at.parent().is_none() || at.starts_with(OLD_ROOT) {
                continue;
            }
            let has = |option: &[u8]| options.split(|b| *b == b',').any(|o| o == option);
            let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_NOSUID;
            flags.set(MsFlags::MS_NODEV, !at.starts_with("/dev") || has(b"nodev"));
            flags.set(MsFlags::MS_NOEXEC, has(b"noexec"));
            flags.set(MsFlags::MS_RDONLY, !self.is_writable(&at) || has(b"ro"));
            remount(&at, flags)?;
        }
        Ok(())
    }
}

/// Mounts the server's own `/proc` and removes the machine's tree; runs inside the new namespaces.
pub(super) fn finish(cwd: &Path) -> Result<(), String> {
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount_new("proc", "/proc", plain, "")?;
    mount_new("tmpfs", SHM_PATH, plain, SHM_OPTIONS)?;
    umount2(OLD_ROOT, MntFlags::MNT_DETACH).map_err(|e| format!("{OLD_ROOT}: {e}"))?;
    fs::remove_dir(OLD_ROOT).map_err(|e| format!("{OLD_ROOT}: {e}"))?;
    let rest = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    remount("/", MsFlags::MS_REMOUNT | MsFlags::MS_BIND | rest)?;
    std::env::set_current_dir(cwd).map_err(|e| format!("{}: {e}", cwd.display()))
}

/// The machine's `/proc`, before [`finish`].
pub(super) fn outside_processes() -> PathBuf {
    Path::new(OLD_ROOT).join("proc")
}

/// The path of this program, before [`finish`].
pub(super) fn kernel_program() -> PathBuf {
    Path::new(OLD_ROOT).join("proc/self/exe")
}

/// Binds a path of the machine to the same path in the new tree.
fn bind(path: &Path) -> Result<(), String> {
    let below = path.strip_prefix("/").unwrap_or(path);
    let source = Path::new(OLD_ROOT).join(below);
    // A path that became a link since it was resolved is left out.
    let Some(opened) = nofollow::open(&source) else {
        return Ok(());
    };
    let source = format!("{OLD_ROOT}/proc/self/fd/{}", opened.as_raw_fd());
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    if nofollow::is_folder(&opened) {
        make_folder(path)?
    } else {
        make_folder(path.parent().unwrap_or(path))?;
        if !path.exists() {
            fs::File::create(path).map_err(|e| failed(&e))?;
        }
    }
    let whole = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(
        Some(source.as_str()),
        path,
        None::<&str>,
        whole,
        None::<&str>,
    )
    .map_err(|e| failed(&e))
}

fn make_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn mount_new(kind: &str, at: &str, flags: MsFlags, options: &str) -> Result<(), String> {
    let mounted = mount(Some(kind), at, Some(kind), flags, Some(options));
    mounted.map_err(|e| format!("{kind} on {at}: {e}"))
}

fn remount(at: impl AsRef<Path>, flags: MsFlags) -> Result<(), String> {
    let at = at.as_ref();
    let changed = mount(None::<&str>, at, None::<&str>, flags, None::<&str>);
    changed.map_err(|e| format!("{} cannot be locked: {e}", at.display()))
}

/// Decodes a path in the mount table, where white space and backslashes are octal.
fn unescape(text: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_preserved_and_their_targets_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(at("real/bin")).unwrap();
        fs::write(at("real/bin/python3.12"), "").unwrap();
        std::os::unix::fs::symlink("python3.12", at("real/bin/python")).unwrap();
        std::os::unix::fs::symlink(at("real"), at("venv")).unwrap();
        let policy = Policy {
            read: vec![at("absent"), at("real/bin/python3.12")],
            write: vec![at("real/bin")],
            links: BTreeMap::from([
                (at("venv"), at("real")),
                (at("real/bin/python"), "python3.12".into()),
            ]),
            ..Policy::default()
        };
        let view = MountView::from_policy(&policy);
        let opened: Vec<_> = view.opened.iter().collect();
        let program = at("real/bin/python3.12");
        assert_eq!(opened, [(&at("real/bin"), &true), (&program, &false)]);
        assert_eq!(view.links[&at("venv")], at("real"));
        assert_eq!(view.links[&at("real/bin/python")], Path::new("python3.12"));
        assert!(view.is_writable(&program), "by the folder it lies in");
        assert!(!view.is_writable(&at("real")));
    }

    #[test]
    fn mount_table_paths_are_unescaped() {
        assert_eq!(unescape(br"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(br"/odd\9"), Path::new(r"/odd\9"));
    }
}
