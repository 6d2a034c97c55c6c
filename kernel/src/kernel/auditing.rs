//! The audit log of this kernel: where it is, what it keeps, what it keeps out.

use mgp_actors::audit::{AuditHandle, Folder, Opening};
use mgp_engine::audit::redact::Redaction;
use mgp_engine::spec::Reach;

use super::hold;
use crate::cli::UpOptions;
use crate::config::Loaded;

/// Opens the log.
///
/// # Errors
/// In words, why there is none: what is not written down is not done.
pub(super) fn open(options: &UpOptions) -> Result<AuditHandle, String> {
    let audit = &options.loaded.kernel.audit;
    if !audit.enabled {
        tracing::warn!("no audit log is kept: `enabled` in [audit] is false");
        return Ok(AuditHandle::off());
    }
    let key = hold::audit_key(&options.data_dir)?;
    Opening {
        folder: Folder::of(&options.data_dir),
        calls: audit.schedule(),
        retention: audit.retention,
        redaction: redaction(&options.loaded, &key),
    }
    .open()
}

/// Values of variables and headers may be secrets, and so are in no record.
fn redaction(loaded: &Loaded, key: &[u8; 32]) -> Redaction {
    let servers = loaded.servers.iter().filter_map(|s| s.as_ref().ok());
    let secrets = servers.flat_map(|spec| match &spec.reach {
        Reach::Stdio { env, .. } => env.values().cloned().collect::<Vec<_>>(),
        Reach::Http { headers, .. } => {
            // Of `Bearer SECRET`, the secret may stand alone somewhere.
            let last = |value: &String| value.rsplit(' ').next().map(str::to_owned);
            let alone = headers.values().filter_map(last);
            headers.values().cloned().chain(alone).collect()
        }
    });
    Redaction::new(loaded.kernel.audit.arguments, key, secrets)
}
