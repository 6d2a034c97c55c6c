//! `mgp backup` and `mgp restore`.

use std::time::{Duration, Instant};

use mgp_store::backup::{self, BackupError, BackupSource, CONFIGURATION};
use serde_json::json;

use crate::cli::args::{Backup, Restore};
use crate::cli::client::{CliContext, ProgressLine};
use crate::cli::commands::servers::config_file::in_force;
use crate::cli::failure::Failure;
use crate::cli::print::{report, say};
use crate::cli::words::{bytes, plain};
use crate::config;

/// How long it may take before it shows that it goes on.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

fn failed(error: BackupError) -> Failure {
    Failure::Other(error.to_string())
}

/// Shows that it goes on, once it takes its time.
fn with_progress<T>(title: &str, work: impl FnOnce(&mut dyn FnMut()) -> T) -> T {
    let mut progress = ProgressLine::of(title);
    let (begun, mut is_shown) = (Instant::now(), false);
    work(&mut || {
        if !is_shown && begun.elapsed() > SHOWN_AFTER {
            is_shown = true;
            progress.appear();
        }
    })
}

/// Backs up the data folder of the kernel, whether it runs or not.
pub(in crate::cli::commands) fn back_up(
    context: &CliContext,
    typed: &Backup,
) -> Result<(), Failure> {
    let running = context.status().ok().flatten();
    let loaded = config::load(&context.look_up, &|_| None, None);
    let loaded = loaded.map_err(|e| Failure::Other(e.to_string()))?;
    let data_dir = context.data_dir_in_use(&loaded.kernel, running.as_ref())?;
    let configuration = in_force(context, running.as_ref())?;
    let from = BackupSource {
        data_dir: &data_dir,
        configuration: &configuration,
        version: env!("CARGO_PKG_VERSION"),
    };
    let made = with_progress("backing up", |step| {
        backup::back_up(&from, &typed.file, typed.force, step)
    });
    let manifest = made.map_err(failed)?;
    let secrets = manifest.secrets();
    if context.json {
        let (files, size) = (manifest.files.len(), manifest.bytes());
        return say(json!({
            "file": typed.file,
            "data_dir": manifest.data_dir,
            "made_at": manifest.made_at,
            "files": files,
            "bytes": size,
            "secrets": secrets,
        }));
    }
    say(format_args!(
        "{} is backed up in {}: {} files, {}",
        plain(&manifest.data_dir),
        plain(&typed.file.display().to_string()),
        manifest.files.len(),
        bytes(manifest.bytes())
    ))?;
    report(format_args!(
        "it holds secrets ({}): whoever reads it can be this node",
        secrets.join(", ")
    ));
    Ok(())
}

/// Makes a data folder of a backup.
pub(in crate::cli::commands) fn restore(
    context: &CliContext,
    typed: &Restore,
) -> Result<(), Failure> {
    let loaded = config::load(&context.look_up, &|_| None, None);
    let loaded = loaded.map_err(|e| Failure::Other(e.to_string()))?;
    let data_dir = context.data_dir(&loaded.kernel)?;
    let restored = with_progress("restoring", |step| {
        backup::restore(&typed.file, &data_dir, step)
    });
    let manifest = restored.map_err(failed)?;
    if context.json {
        return say(json!({
            "data_dir": data_dir,
            "backup_of": manifest.data_dir,
            "made_at": manifest.made_at,
            "files": manifest.files.len(),
        }));
    }
    say(format_args!(
        "{} is restored from the backup of {} at {}; `mgp up` starts it",
        plain(&data_dir.display().to_string()),
        plain(&manifest.data_dir),
        manifest.made_at
    ))?;
    let configuration = data_dir.join(CONFIGURATION);
    if configuration.exists() {
        report(format_args!(
            "its configuration is in {}: copy mgp.toml from there to where this machine reads it",
            plain(&configuration.display().to_string())
        ));
    }
    report("the node that was backed up must not run beside it: both would be cut off");
    Ok(())
}
