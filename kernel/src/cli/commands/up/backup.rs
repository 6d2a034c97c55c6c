//! `mgp backup` and `mgp restore`.

use std::time::{Duration, Instant};

use mgp_store::backup::{self, BackupError, BackupSource, CONFIGURATION};
use serde_json::json;

use crate::cli::args::{Backup, Restore};
use crate::cli::client::{CliContext, ProgressLine};
use crate::cli::commands::servers::config_file::files_in_force;
use crate::cli::failure::Failure;
use crate::cli::print::{print_error, print_line};
use crate::cli::text_format::{format_bytes, sanitize_line};
use crate::config;

/// Delay before progress is shown.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

fn backup_failure(error: BackupError) -> Failure {
    Failure::Other(error.to_string())
}

/// Shows progress after a delay.
fn with_progress<T>(title: &str, work: impl FnOnce(&mut dyn FnMut()) -> T) -> T {
    let mut progress = ProgressLine::new(title);
    let (begun, mut is_shown) = (Instant::now(), false);
    work(&mut || {
        if !is_shown && begun.elapsed() > PROGRESS_DELAY {
            is_shown = true;
            progress.show();
        }
    })
}

/// Backs up the data folder of the kernel, whether it runs or not.
pub(in crate::cli::commands) fn create_backup(
    context: &CliContext,
    typed: &Backup,
) -> Result<(), Failure> {
    let running = context.status().ok().flatten();
    let loaded = config::load(&context.look_up, &|_| None, None);
    let loaded = loaded.map_err(|e| Failure::Other(e.to_string()))?;
    let data_dir = context.running_data_dir(&loaded.kernel, running.as_ref())?;
    let configuration = files_in_force(context, running.as_ref())?;
    let from = BackupSource {
        data_dir: &data_dir,
        configuration: &configuration,
        version: env!("CARGO_PKG_VERSION"),
    };
    let made = with_progress("backing up", |step| {
        backup::back_up(&from, &typed.file, typed.force, step)
    });
    let manifest = made.map_err(backup_failure)?;
    let secrets = manifest.secrets();
    if context.json {
        let (files, size) = (manifest.files.len(), manifest.bytes());
        return print_line(json!({
            "file": typed.file,
            "data_dir": manifest.data_dir,
            "made_at": manifest.made_at,
            "files": files,
            "bytes": size,
            "secrets": secrets,
        }));
    }
    print_line(format_args!(
        "{} is backed up in {}: {} files, {}",
        sanitize_line(&manifest.data_dir),
        sanitize_line(&typed.file.display().to_string()),
        manifest.files.len(),
        format_bytes(manifest.bytes())
    ))?;
    print_error(format_args!(
        "it holds secrets ({}): whoever reads it can be this node",
        secrets.join(", ")
    ));
    Ok(())
}

/// Restores a data folder from a backup.
pub(in crate::cli::commands) fn restore_backup(
    context: &CliContext,
    typed: &Restore,
) -> Result<(), Failure> {
    let loaded = config::load(&context.look_up, &|_| None, None);
    let loaded = loaded.map_err(|e| Failure::Other(e.to_string()))?;
    let data_dir = context.data_dir(&loaded.kernel)?;
    let restored = with_progress("restoring", |step| {
        backup::restore(&typed.file, &data_dir, step)
    });
    let manifest = restored.map_err(backup_failure)?;
    if context.json {
        return print_line(json!({
            "data_dir": data_dir,
            "backup_of": manifest.data_dir,
            "made_at": manifest.made_at,
            "files": manifest.files.len(),
        }));
    }
    print_line(format_args!(
        "{} is restored from the backup of {} at {}; `mgp up` starts it",
        sanitize_line(&data_dir.display().to_string()),
        sanitize_line(&manifest.data_dir),
        manifest.made_at
    ))?;
    let configuration = data_dir.join(CONFIGURATION);
    if configuration.exists() {
        print_error(format_args!(
            "its configuration is in {}: copy mgp.toml from there to where this machine reads it",
            sanitize_line(&configuration.display().to_string())
        ));
    }
    print_error("the node that was backed up must not run beside it: both would be cut off");
    Ok(())
}
