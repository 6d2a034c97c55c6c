//! The audit log of this kernel: where it is, what it keeps, what it keeps out.

use mgp_engine::store::audit::redact::Redaction;
use mgp_store::audit::{AuditHandle, Folder, LogOptions};

use super::options::UpOptions;
use super::secrets;

/// Opens the log.
///
/// # Errors
/// In words, why there is none: what is not written down is not done.
pub(super) fn open(options: &UpOptions) -> Result<AuditHandle, String> {
    let audit = &options.loaded.kernel.audit;
    if !audit.enabled {
        tracing::warn!("no audit log is kept: `enabled` in [audit] is false");
        let off = AuditHandle::off();
        off.redact(options.loaded.secrets());
        return Ok(off);
    }
    let key = secrets::audit_key(&options.data_dir)?;
    LogOptions {
        folder: Folder::of(&options.data_dir),
        calls: audit.schedule(),
        retention: audit.retention,
        per_day: audit.per_day(),
        redaction: Redaction::new(audit.arguments, &key, options.loaded.secrets()),
    }
    .open()
}
