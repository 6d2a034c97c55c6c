//! A person is asked about sets whose server declares more than was approved.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mgp_engine::policy::approvals::{ApprovalQuestion, Asker};
use mgp_mcpl_engine::policy::difference;
use mgp_policy::approvals::{ApprovalsHandle, AwaitedApproval};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::feature_sets::FeatureSet;
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::mgp::permission::Verdict;
use mgp_runtime::task::{self, SupervisedTask};

use super::{HostEvent, McplHost};

/// What its sets declare now, and what was approved of them.
type Waiting = BTreeMap<String, (FeatureSet, FeatureSet)>;

/// The questions that are open: one for each server.
#[derive(Debug, Default)]
pub(crate) struct SetQuestions(Mutex<BTreeMap<ServerId, SetQuestion>>);

#[derive(Debug)]
struct SetQuestion {
    about: Waiting,
    /// Dropping it withdraws the question.
    _task: SupervisedTask<()>,
}

impl SetQuestions {
    /// Asks about what waits at a server; a question about something else is withdrawn. What somebody said no to is not
    /// asked again while it stays the same.
    pub(crate) fn review(
        &self,
        host: &Arc<McplHost>,
        approvals: &ApprovalsHandle,
        server: &ServerId,
    ) {
        let about = host.set_keeper().waiting(server);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open
            .get(server)
            .map_or(about.is_empty(), |it| it.about == about)
        {
            return;
        }
        open.remove(server);
        if about.is_empty() {
            return;
        }
        let names = about.keys().cloned().collect::<Vec<_>>().join(", ");
        tracing::warn!(%server, sets = names, "feature sets declare more than was approved");
        match approvals.ask(question(server, &about)) {
            // There may be room at the next change.
            Err(full) => {
                tracing::warn!(%server, %full, "nobody is asked about changed feature sets");
            }
            Ok(asked) => {
                let waits = wait(Arc::downgrade(host), server.clone(), about.clone(), asked);
                let _task = task::supervised("mcpl.sets.question", waits);
                open.insert(server.clone(), SetQuestion { about, _task });
            }
        }
    }
}

fn question(server: &ServerId, about: &Waiting) -> ApprovalQuestion {
    let names = about.keys().cloned().collect::<Vec<_>>().join(", ");
    let details = about.iter();
    let details = details.flat_map(|(name, (now, approved))| difference(name, approved, now));
    ApprovalQuestion {
        subject: Subject::Pins,
        asker: Asker::Server(server.clone()),
        server: Some(server.clone()),
        text: format!(
            "server {server} declares more for its feature sets than was approved: {names}"
        ),
        details: details.collect(),
        parts: Vec::new(),
        options: None,
        until_ms: None,
    }
}

async fn wait(host: Weak<McplHost>, server: ServerId, about: Waiting, mut asked: AwaitedApproval) {
    while let Some(answer) = asked.answer().await {
        let Some(host) = host.upgrade() else { return };
        if answer.verdict == Verdict::Deferred {
            answer.taken();
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
                answer.failed(why.to_string());
                continue;
            }
        };
        asked.close();
        answer.taken();
        // Whoever hears of it forgets this question, with this task.
        task::detached("mcpl.sets.decided", async move {
            for server in changed {
                host.happened(&HostEvent::SetsChanged(server));
            }
        });
        return;
    }
}
