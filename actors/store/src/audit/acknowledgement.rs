//! Lets the operator acknowledge faults of the log: verification then accepts them.

use mgp_engine::store::audit::verify::{ACKNOWLEDGED_MAX, acknowledgment};
use mgp_protocol::mgp::audit::{
    Acknowledge, Acknowledged, EventType, LastRecord, Outcome, Target, TraceId,
};
use mgp_protocol::refusal::Refusal;
use serde_json::json;

use super::verification::{log_disabled, verify_folder};
use super::{AuditHandle, new_event, operator_actor};

impl AuditHandle {
    /// The last written record.
    ///
    /// # Errors
    /// When no log is written.
    pub fn last_record(&self) -> Result<LastRecord, Refusal> {
        let queue = self.queue.as_ref().ok_or_else(log_disabled)?;
        let last = *queue.written.borrow();
        Ok(LastRecord {
            sequence: last.sequence,
            hash: last.hash.to_string(),
        })
    }

    /// Verifies the whole log and records that its faults are acknowledged. Writes nothing if there are
    /// none.
    ///
    /// # Errors
    /// When no log is written, when it cannot be read or written, and when there are more faults than one
    /// record can name.
    pub async fn acknowledge(
        &self,
        asked: &Acknowledge,
        trace: &TraceId,
    ) -> Result<Acknowledged, Refusal> {
        let queue = self.queue.as_ref().ok_or_else(log_disabled)?;
        let (folder, last) = (queue.folder.clone(), *queue.written.borrow());
        let verified = mgp_runtime::task::run_blocking("audit.examine", move || {
            verify_folder(&folder, Some(last))
        })
        .await;
        let found = verified
            .map_err(|e| Refusal::Internal(e.to_string()))?
            .map_err(|e| Refusal::Internal(format!("the audit log: {e}")))?;
        let acknowledged = found.describe_faults();
        if found.is_intact() {
            return Ok(Acknowledged { acknowledged });
        }
        let faults = &found.report.faults;
        if faults.len() > ACKNOWLEDGED_MAX {
            return Err(Refusal::BadRequest(format!(
                "{} faults, and at most {ACKNOWLEDGED_MAX} are acknowledged: move {} away, as evidence, and start the kernel again",
                faults.len(),
                queue.folder.folder().display()
            )));
        }
        let faults: Vec<_> = faults.iter().map(acknowledgment).collect();
        // The record says up to which point the log is accepted.
        let mut details = json!({"faults": faults});
        if !found.file_faults.is_empty() {
            details["beside"] = json!(found.file_faults);
        }
        if let Some(reason) = &asked.reason {
            details["reason"] = json!(reason);
        }
        let kind = EventType::LOG_ACKNOWLEDGED;
        let target = Target::default();
        let event = new_event(
            kind,
            operator_actor(),
            target,
            trace,
            Outcome::Success,
            details,
        );
        let written = self.record_decision(event).await;
        written.map_err(|error| Refusal::Internal(error.to_string()))?;
        Ok(Acknowledged { acknowledged })
    }
}
