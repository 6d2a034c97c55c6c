//! Requests approval of sets whose server declares more than was approved.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mgp_engine::policy::approvals::{PendingEntry, Requester};
use mgp_mcpl_engine::policy::difference;
use mgp_policy::{ApprovalsHandle, PendingEntryGuard};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::feature_sets::FeatureSet;
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::mgp::permission::Verdict;
use mgp_runtime::task::{self, SupervisedTask};

use super::{HostEvent, McplHost};

/// The current and the approved declarations of sets.
type PendingDeclarations = BTreeMap<String, (FeatureSet, FeatureSet)>;

/// The pending entries, one for each server.
#[derive(Debug, Default)]
pub(crate) struct SetApprovals(Mutex<BTreeMap<ServerId, SetApproval>>);

#[derive(Debug)]
struct SetApproval {
    declarations: PendingDeclarations,
    /// Dropping it withdraws the entry.
    _task: SupervisedTask<()>,
}

impl SetApprovals {
    /// Adds an entry for a server's pending declarations, and withdraws an outdated one. A denied declaration is not requested
    /// again while it is unchanged.
    pub(crate) fn review(
        &self,
        host: &Arc<McplHost>,
        approvals: &ApprovalsHandle,
        server: &ServerId,
    ) {
        let declarations = host.set_keeper().pending_declarations(server);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.get(server).map_or(declarations.is_empty(), |it| {
            it.declarations == declarations
        }) {
            return;
        }
        open.remove(server);
        if declarations.is_empty() {
            return;
        }
        let names = declarations.keys().cloned().collect::<Vec<_>>().join(", ");
        tracing::warn!(%server, sets = names, "feature sets declare more than was approved");
        match approvals.add(approval_entry(server, &declarations)) {
            // Added at the next change, if there is capacity then.
            Err(full) => {
                tracing::warn!(%server, %full, "cannot ask the operator about changed feature sets");
            }
            Ok(guard) => {
                let waiter = wait_for_decision(
                    Arc::downgrade(host),
                    server.clone(),
                    declarations.clone(),
                    guard,
                );
                let _task = task::spawn_supervised("mcpl.sets.question", waiter);
                open.insert(
                    server.clone(),
                    SetApproval {
                        declarations,
                        _task,
                    },
                );
            }
        }
    }
}

fn approval_entry(server: &ServerId, declarations: &PendingDeclarations) -> PendingEntry {
    let names = declarations.keys().cloned().collect::<Vec<_>>().join(", ");
    let details = declarations.iter();
    let details = details.flat_map(|(name, (now, approved))| difference(name, approved, now));
    PendingEntry {
        subject: Subject::Pins,
        requester: Requester::Server(server.clone()),
        server: Some(server.clone()),
        text: format!(
            "server {server} declares more for its feature sets than was approved: {names}"
        ),
        details: details.collect(),
        parts: Vec::new(),
        options: None,
        expires_ms: None,
    }
}

async fn wait_for_decision(
    host: Weak<McplHost>,
    server: ServerId,
    declarations: PendingDeclarations,
    mut guard: PendingEntryGuard,
) {
    while let Some(answer) = guard.next_answer().await {
        let Some(host) = host.upgrade() else { return };
        if answer.verdict == Verdict::Deferred {
            answer.report_applied();
            continue;
        }
        let declared = declarations.iter();
        let declared = declared.map(|(name, (now, _))| (name.clone(), now.clone()));
        let approved = answer.verdict == Verdict::Approved;
        let decided = host.set_keeper();
        let decided = decided.decide(&server, declared.collect(), approved).await;
        let changed = match decided {
            Ok(changed) => changed,
            Err(why) => {
                answer.report_failed(why.to_string());
                continue;
            }
        };
        guard.close();
        answer.report_applied();
        // A handler drops this entry, and with it this task.
        task::spawn_detached("mcpl.sets.decided", async move {
            for server in changed {
                host.dispatch(&HostEvent::SetsChanged(server));
            }
        });
        return;
    }
}
