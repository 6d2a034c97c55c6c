//! Requests approval of sets whose server declares more than was approved.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mgp_engine::policy::approvals::{PendingEntry, Requester};
use mgp_mcpl_engine::policy::difference;
use mgp_policy::approvals::{ApprovalsHandle, PendingEntryGuard};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::feature_sets::FeatureSet;
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::mgp::permission::Verdict;
use mgp_runtime::task::{self, SupervisedTask};

use super::{HostEvent, McplHost};

/// What its sets declare now, and what was approved of them.
type PendingDeclarations = BTreeMap<String, (FeatureSet, FeatureSet)>;

/// The pending entries: one for each server.
#[derive(Debug, Default)]
pub(crate) struct SetApprovals(Mutex<BTreeMap<ServerId, SetApproval>>);

#[derive(Debug)]
struct SetApproval {
    declarations: PendingDeclarations,
    /// Dropping it withdraws the entry.
    _task: SupervisedTask<()>,
}

impl SetApprovals {
    /// Adds an entry for a server's pending declarations, and withdraws an outdated one. A denied declaration is not
    /// asked about again while it stays the same.
    pub(crate) fn review(
        &self,
        host: &Arc<McplHost>,
        approvals: &ApprovalsHandle,
        server: &ServerId,
    ) {
        let about = host.set_keeper().pending_declarations(server);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open
            .get(server)
            .map_or(about.is_empty(), |it| it.declarations == about)
        {
            return;
        }
        open.remove(server);
        if about.is_empty() {
            return;
        }
        let names = about.keys().cloned().collect::<Vec<_>>().join(", ");
        tracing::warn!(%server, sets = names, "feature sets declare more than was approved");
        match approvals.add(approval_question(server, &about)) {
            // There may be capacity at the next change.
            Err(full) => {
                tracing::warn!(%server, %full, "nobody is asked about changed feature sets");
            }
            Ok(asked) => {
                let waits =
                    wait_for_decision(Arc::downgrade(host), server.clone(), about.clone(), asked);
                let _task = task::spawn_supervised("mcpl.sets.question", waits);
                open.insert(
                    server.clone(),
                    SetApproval {
                        declarations: about,
                        _task,
                    },
                );
            }
        }
    }
}

fn approval_question(server: &ServerId, about: &PendingDeclarations) -> PendingEntry {
    let names = about.keys().cloned().collect::<Vec<_>>().join(", ");
    let details = about.iter();
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
    about: PendingDeclarations,
    mut asked: PendingEntryGuard,
) {
    while let Some(answer) = asked.next_answer().await {
        let Some(host) = host.upgrade() else { return };
        if answer.verdict == Verdict::Deferred {
            answer.report_applied();
            continue;
        }
        let declared = about.iter();
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
        asked.close();
        answer.report_applied();
        // Whoever hears of it forgets this question, with this task.
        task::spawn_detached("mcpl.sets.decided", async move {
            for server in changed {
                host.dispatch(&HostEvent::SetsChanged(server));
            }
        });
        return;
    }
}
