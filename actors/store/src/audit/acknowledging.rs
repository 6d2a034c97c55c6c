//! The operator acknowledges faults of the log: from then on verification accepts them.

use mgp_engine::store::audit::verify::{ACCEPTED_MAX, acceptance};
use mgp_protocol::mgp::audit::{
    Acknowledge, Acknowledged, EventType, LastRecord, Outcome, Target, TraceId,
};
use mgp_protocol::refusal::Refusal;
use serde_json::json;

use super::examine::{examine, none_kept};
use super::{AuditHandle, by_operator, event};

impl AuditHandle {
    /// The last record that was written.
    ///
    /// # Errors
    /// When no log is kept.
    pub fn last(&self) -> Result<LastRecord, Refusal> {
        let ledger = self.ledger.as_ref().ok_or_else(none_kept)?;
        let last = *ledger.written.borrow();
        Ok(LastRecord {
            sequence: last.sequence,
            hash: last.hash.to_string(),
        })
    }

    /// Verifies the whole log and records that its faults are acknowledged. Writes nothing if there are
    /// none.
    ///
    /// # Errors
    /// When no log is kept, when it cannot be read or written, and when there are more faults than one
    /// record can name.
    pub async fn acknowledge(
        &self,
        asked: &Acknowledge,
        trace: &TraceId,
    ) -> Result<Acknowledged, Refusal> {
        let ledger = self.ledger.as_ref().ok_or_else(none_kept)?;
        let (folder, last) = (ledger.folder.clone(), *ledger.written.borrow());
        let looked =
            mgp_runtime::task::blocking("audit.examine", move || examine(&folder, Some(last)))
                .await;
        let found = looked
            .map_err(|e| Refusal::Broken(e.to_string()))?
            .map_err(|e| Refusal::Broken(format!("the audit log: {e}")))?;
        let acknowledged = found.told();
        if found.is_whole() {
            return Ok(Acknowledged { acknowledged });
        }
        let faults = &found.report.faults;
        if faults.len() > ACCEPTED_MAX {
            return Err(Refusal::BadRequest(format!(
                "{} faults, and at most {ACCEPTED_MAX} are acknowledged: move {} away, as evidence, and start the kernel again",
                faults.len(),
                ledger.folder.folder().display()
            )));
        }
        let faults: Vec<_> = faults.iter().map(acceptance).collect();
        // The record says up to which point the log is accepted.
        let mut details = json!({"faults": faults});
        if !found.beside.is_empty() {
            details["beside"] = json!(found.beside);
        }
        if let Some(reason) = &asked.reason {
            details["reason"] = json!(reason);
        }
        let kind = EventType::LOG_ACKNOWLEDGED;
        let target = Target::default();
        let said = event(
            kind,
            by_operator(),
            target,
            trace,
            Outcome::Success,
            details,
        );
        let written = self.decided(said).await;
        written.map_err(|error| Refusal::Broken(error.to_string()))?;
        Ok(Acknowledged { acknowledged })
    }
}
