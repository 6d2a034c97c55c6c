//! Announces pending entries outside of the kernel: on the desktop, through a program, at a webhook.
//!
//! Each channel has a task and a [`NoticeSchedule`], so that a failing one delays no other.

mod channel;
mod notice;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mgp_calls::Context;
use mgp_calls::mgp::approvals::list_pending;
use mgp_engine::policy::notices::{AfterFailure, NoticeSchedule};
use mgp_protocol::mgp::approvals::PendingList;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::monotonic_now;
use mgp_transports::http::client::Client;
use tokio::sync::watch;

use self::channel::Channel;
use self::notice::Notice;
use crate::config::NotifyConfig;

/// How often the list is read without a change: logins that servers want report none.
const READ_INTERVAL: Duration = Duration::from_secs(30);

/// Starts a task for each configured channel. `changes` is marked with each change of the list.
pub(crate) fn start(
    config: &NotifyConfig,
    client: &Client,
    cx: &Arc<Context>,
    changes: &watch::Sender<()>,
    node: String,
) -> Vec<SupervisedTask<()>> {
    let channels = Channel::from_config(config, client).into_iter();
    let announcers = channels.map(|channel| Announcer {
        channel,
        cx: cx.clone(),
        changes: changes.subscribe(),
        node: node.clone(),
        schedule: NoticeSchedule::default(),
    });
    let tasks = announcers.map(|it| task::spawn_supervised("notices.announce", it.run()));
    tasks.collect()
}

/// Announces pending entries through one channel.
struct Announcer {
    channel: Channel,
    cx: Arc<Context>,
    changes: watch::Receiver<()>,
    node: String,
    schedule: NoticeSchedule,
}

impl Announcer {
    async fn run(mut self) {
        loop {
            // The pairing actor ends with the kernel.
            let list = list_pending(&self.cx).await.unwrap_or_default();
            self.schedule
                .set_open(&notice::entry_ids(&list), monotonic_now());
            let entries = self.schedule.due_entries(monotonic_now());
            if !entries.is_empty() {
                self.announce(&list, entries).await;
                continue;
            }
            let due = self.schedule.due();
            let wait = due.map_or(READ_INTERVAL, |due| due.duration_since(monotonic_now()));
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn announce(&mut self, list: &PendingList, entries: BTreeSet<String>) {
        let notice = Notice::new(list, &entries, &self.node);
        let channel = self.channel.name();
        match self.channel.send(&notice).await {
            Ok(()) => self.schedule.record_success(entries, monotonic_now()),
            Err(why) => {
                let after = self.schedule.record_failure(entries, monotonic_now());
                match after {
                    AfterFailure::Retry(delay) => tracing::warn!(
                        "pending entries could not be announced by [notify] {channel}: {why}; next try in {} s",
                        delay.as_secs()
                    ),
                    AfterFailure::GiveUp => tracing::error!(
                        "pending entries could not be announced by [notify] {channel}: {why}; given up, `mgp pending` lists them"
                    ),
                }
            }
        }
    }
}
