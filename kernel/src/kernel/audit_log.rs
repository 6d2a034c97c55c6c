//! Opens the audit log of this kernel: its location, retention and masks.

use mgp_engine::store::audit::redact::Redaction;
use mgp_store::audit::{AuditHandle, LogFolder, LogOptions};

use super::options::KernelOptions;
use super::secrets;

/// # Errors
/// Describes why it cannot be opened: without audit nothing is done.
pub(super) fn open(options: &KernelOptions) -> Result<AuditHandle, String> {
    let audit = &options.loaded.kernel.audit;
    if !audit.enabled {
        tracing::warn!("no audit log is kept: `enabled` in [audit] is false");
        let off = AuditHandle::disabled();
        off.redact(options.loaded.secrets());
        return Ok(off);
    }
    let key = secrets::load_audit_key(&options.data_dir)?;
    LogOptions {
        folder: LogFolder::new(&options.data_dir),
        calls: audit.call_auditing(),
        retention: audit.retention,
        per_day: audit.daily_agent_bytes(),
        redaction: Redaction::new(audit.arguments, &key, options.loaded.secrets()),
    }
    .open()
}
