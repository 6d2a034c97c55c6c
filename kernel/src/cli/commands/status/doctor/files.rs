//! Checks persistent state: permissions, free disk space, the clock, and the integrity of the log and the
//! journals.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use mgp_policy::GrantStore;
use mgp_runtime::time::unix_ms;
use nix::unistd::geteuid;
use rustix::fs::statvfs;

use super::CheckContext;
use super::finding::{Finding, Remedy};
use crate::cli::commands::audit;
use crate::cli::text_format::{format_bytes, format_duration};
use crate::config::named_secrets::NamedSecrets;
use crate::kernel::witnessed_files;

/// Files of the data folder that must be private.
const PRIVATE_FILES: [&str; 12] = [
    "token",
    "metrics.token",
    "agents.json",
    "sign-ins.json",
    "node.key",
    "seal.key",
    "audit.key",
    "grants.journal",
    "registered.journal",
    "files.witness",
    "files.witness.2",
    "kernel.log",
];
/// Free disk space that gets a warning, in bytes: some days of logs and records.
const DISK_WARN_BYTES: u64 = 200 << 20;
/// Free disk space that a start requires, in bytes.
const DISK_MIN_BYTES: u64 = 64 << 10;
/// Tolerated time of a file ahead of the clock, in milliseconds: network file systems may have other clocks.
const CLOCK_SKEW_MAX_MS: u64 = 60_000;
/// No correct clock shows an earlier time: the beginning of 2026, in milliseconds.
const EARLIEST_MS: u64 = 1_767_225_600_000;

pub(super) fn check(cx: &CheckContext<'_>) -> Vec<Finding> {
    let mut found = check_modes(cx);
    found.extend(check_disk_space(&cx.data_dir));
    let recorded = match cx.status {
        Some(_) => audit::newest_record_ms(cx.context).ok().flatten(),
        None => None,
    };
    found.push(check_clock(&cx.data_dir, recorded));
    found.extend(check_logs(cx));
    // A running kernel reports its findings in its status.
    if cx.status.is_none() {
        found.extend(check_witnesses(&cx.data_dir));
    }
    found
}

/// The files' contents, by their witnesses.
fn check_witnesses(data_dir: &Path) -> Vec<Finding> {
    const AREA: &str = "witness";
    match witnessed_files::examine(data_dir) {
        None => Vec::new(),
        Some(lost) if lost.is_empty() => {
            vec![Finding::good(AREA, "no file lacks what it held")]
        }
        Some(lost) => lost
            .into_iter()
            .map(|lost| Finding::broken(AREA, lost))
            .collect(),
    }
}

fn check_modes(cx: &CheckContext<'_>) -> Vec<Finding> {
    const AREA: &str = "files";
    let data_dir = &cx.data_dir;
    let mut places: Vec<(PathBuf, u32)> = vec![(data_dir.clone(), 0o700)];
    places.extend(PRIVATE_FILES.map(|name| (data_dir.join(name), 0o600)));
    let look_up = &cx.context.look_up;
    if let Some(store) = NamedSecrets::for_look_up(look_up).store(&cx.loaded.kernel.secrets) {
        places.push((store.folder().to_owned(), 0o700));
        places.push((store.key().to_owned(), 0o600));
    }
    places.extend(look_up.secrets_folder().map(|folder| (folder, 0o700)));
    if let Some(folder) = cx.context.socket().parent() {
        places.push((folder.to_owned(), 0o700));
    }
    let looked_at = places.iter().filter(|(path, _)| path.exists()).count();
    let mut found: Vec<_> = places
        .iter()
        .filter_map(|(path, mode)| check_mode(AREA, path, *mode))
        .collect();
    if found.is_empty() && looked_at > 0 {
        found.push(Finding::good(
            AREA,
            "nobody else can read what is yours alone",
        ));
    }
    found
}

/// A missing file is readable by nobody.
fn check_mode(area: &'static str, path: &Path, mode: u32) -> Option<Finding> {
    let there = fs::metadata(path).ok()?;
    let shown = path.display();
    if there.uid() != geteuid().as_raw() {
        let message = format!("{shown} belongs to user {}, not to you", there.uid());
        return Some(
            Finding::broken(area, message).with_command(format!("sudo chown $USER {shown}")),
        );
    }
    // Others may enter the folder if its files are private; the socket must not be writable.
    let others = there.permissions().mode() & 0o777 & !mode;
    let message = format!(
        "{shown} has mode {:o}: other users can look into it",
        there.permissions().mode() & 0o777
    );
    (others != 0).then(|| {
        Finding::broken(area, message)
            .with_command(format!("chmod {mode:o} {shown}"))
            .with_remedy(Remedy::Mode(path.to_owned(), mode))
    })
}

fn check_disk_space(data_dir: &Path) -> Option<Finding> {
    const AREA: &str = "disk";
    let there = data_dir.ancestors().find(|folder| folder.exists())?;
    let disk = statvfs(there).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let message = format!("{} free for {}", format_bytes(free), data_dir.display());
    let inodes = disk.f_files == 0 || disk.f_favail > 0;
    Some(match free {
        _ if !inodes => Finding::broken(
            AREA,
            format!("no more files fit beside {}", data_dir.display()),
        ),
        0..DISK_MIN_BYTES => Finding::broken(AREA, message).with_command("free some space there"),
        DISK_MIN_BYTES..DISK_WARN_BYTES => {
            Finding::warning(AREA, message).with_command("free some space there")
        }
        DISK_WARN_BYTES.. => Finding::good(AREA, message),
    })
}

/// Tokens, grants and records depend on the clock.
fn check_clock(data_dir: &Path, recorded_ms: Option<u64>) -> Finding {
    const AREA: &str = "clock";
    let now = unix_ms();
    let command = "timedatectl set-ntp true";
    if now < EARLIEST_MS {
        return Finding::broken(
            AREA,
            "it is not set: it shows a time before this program was made",
        )
        .with_command(command);
    }
    let newest = fs::read_dir(data_dir).into_iter().flatten().flatten();
    let newest = newest.filter_map(|entry| {
        let at = entry.metadata().ok()?.modified().ok()?;
        u64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
    });
    // Files of other programs may have other clocks: the kernel's records count, too.
    let newest = newest.chain(recorded_ms).max();
    let ahead = newest.unwrap_or(now).saturating_sub(now);
    if ahead > CLOCK_SKEW_MAX_MS {
        Finding::broken(
            AREA,
            format!(
                "it was set back: what the kernel wrote last is dated {} from now",
                format_duration(ahead)
            ),
        )
        .with_command(command)
    } else {
        Finding::good(AREA, "it goes on from what was written last")
    }
}

fn check_logs(cx: &CheckContext<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let data_dir = &cx.data_dir;
    if cx.loaded.kernel.audit.enabled && data_dir.exists() {
        match audit::find_faults(cx.context, data_dir) {
            Ok(faults) if faults.is_empty() => {
                found.push(Finding::good("audit", "the log is as it was written"));
            }
            Ok(faults) => found
                .push(Finding::broken("audit", faults.join("; ")).with_command("mgp audit verify")),
            Err(why) => found.push(Finding::broken("audit", why.to_string())),
        }
    }
    let journal = data_dir.join("grants.journal");
    if journal.exists() {
        found.push(match GrantStore::examine(&journal) {
            Ok(entries) => Finding::good(
                "journal",
                format!("{entries} decisions, as they were written"),
            ),
            // A kernel may be writing the last one.
            Err(why) if cx.status.is_some() => Finding::warning("journal", why),
            Err(why) => Finding::broken("journal", why),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::finding::FindingLevel;
    use super::*;

    #[test]
    fn files_readable_by_others_are_reported_and_fixed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        assert_eq!(check_mode("files", &file, 0o600), None);
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let mut found = check_mode("files", &file, 0o600).unwrap();
        assert!(found.render().contains("mode 640") && found.render().contains("chmod 600"));
        found.fix();
        assert_eq!(check_mode("files", &file, 0o600), None);
    }

    #[test]
    fn a_clock_that_was_set_back_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(check_clock(folder.path(), None).level, FindingLevel::Ok);
        let tomorrow = unix_ms() + 86_400_000;
        let found = check_clock(folder.path(), Some(tomorrow));
        assert_eq!(found.level, FindingLevel::Broken);
        assert!(
            found.render().contains("it was set back"),
            "{}",
            found.render()
        );
        let file = fs::File::create(folder.path().join("kernel.lock")).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(7200))
            .unwrap();
        let found = check_clock(folder.path(), None);
        assert_eq!(found.level, FindingLevel::Broken, "{}", found.render());
    }
}
